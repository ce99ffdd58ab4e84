"""The verb `schema`: what an editor needs to check experiment files while they are written."""


def schema() -> int:
    """Print the JSON Schema of the experiment file, for editors.

    Save it, [bold]crescendo schema > experiment.schema.json[/bold], and begin a file with
    [bold]# yaml-language-server: $schema=experiment.schema.json[/bold], or set it in the editor.
    """
    import json

    from crescendo.model.experiment_schema import experiment_schema

    print(json.dumps(experiment_schema(), indent=2, ensure_ascii=False))
    return 0
