"""What people type: the options of every verb. Each imports its machinery only when it is called."""
