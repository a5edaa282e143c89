# SPDX-License-Identifier: Apache-2.0
"""Record tests that failed and are run again in ``out/flaky.csv``: test, commit, load average.

``flaky.py go FILE`` reads gotestsum's report of the tests that it has run again. ``flaky.py python
FILE --most N`` reads pytest's ``lastfailed``, and exits with an error if it lists more than N
tests; then no test is run again. A test that is recorded twice in ten runs is a defect
(CONTRIBUTING.md).
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def failed(kind: str, path: Path) -> list[str]:
    """The tests that a report names; none if the report does not exist."""
    if not path.exists():
        return []
    if kind == "python":
        return sorted(json.loads(path.read_text()))
    # gotestsum: "PACKAGE.TEST: N runs, M failures"
    return [line.split(":")[0].strip() for line in path.read_text().splitlines() if line.strip()]


def main() -> int:
    """Append the tests to the file, and print them."""
    parser = argparse.ArgumentParser(description="write down tests that are run again")
    parser.add_argument("kind", choices=("go", "python"))
    parser.add_argument("report", type=Path)
    parser.add_argument("--most", type=int, default=sys.maxsize, help="fail if more tests have failed")
    options = parser.parse_args()
    names = failed(options.kind, options.report)
    if not names:
        return 1 if options.kind == "python" else 0  # pytest failed without naming a test
    if len(names) > options.most:
        return 1
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    out = ROOT / "out" / "flaky.csv"
    out.parent.mkdir(exist_ok=True)
    new = not out.exists()
    with out.open("a", newline="") as file:
        rows = csv.writer(file)
        if new:
            rows.writerow(["test", "commit", "load"])
        for name in names:
            rows.writerow([name, commit, f"{os.getloadavg()[0]:.1f}"])
    print("FAILED ONCE, and run again (out/flaky.csv):", *names, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
