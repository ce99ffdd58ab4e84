"""How does a group of MLMQ brokers run as one process of a system?

`python -m crescendo.mlmq.broker_group PLAN`, as `systems/kinds/mlmq.py` starts it. Not a CLI command: users start one
broker with `crescendo broker`, and a whole system with `crescendo system up mlmq`. Decides nothing; the group does.
"""

import logging
import sys
from pathlib import Path

from crescendo.mlmq.broker_group.group import read_plan, serve
from crescendo.model.errors import CrescendoError
from crescendo.processes.die_with_parent import die_with_parent


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        return serve(read_plan(Path(sys.argv[1])), die_with_parent())
    except CrescendoError as err:
        print(err, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
