#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats, vets, builds and tests Go modules of the tree: those that are named, or every one but the
# root's. Those that the root requires are tested with it. One that has no package without a build
# tag only pins other people's programs: its files are parsed, and its go.sum is checked. A test that
# fails is run once more, and listed in out/failed-once.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
go=${GO:-go}
[ "$go" = go ] || export PATH="$(dirname "$go"):$PATH"
export GOWORK=off # each by its own go.mod, as somebody else requires it
mkdir -p bin out
"$go" build -o bin/gotestsum gotest.tools/gotestsum # from the root's go.mod
if [ $# = 0 ]; then
  mapfile -t files < <(git ls-files '*go.mod')
  for f in "${files[@]}"; do
    [ "$f" = go.mod ] || set -- "$@" "$(dirname "$f")"
  done
fi
for m in "$@"; do
  echo "== $m"
  cd "$root/$m"
  unformatted=$(gofmt -l .)
  [ -z "$unformatted" ] || { echo "gofmt would change: $unformatted"; exit 1; }
  packages=$("$go" list ./...)
  if [ -z "$packages" ]; then
    "$go" mod verify
    continue
  fi
  "$go" vet ./...
  # Others require these, from a proxy: their go.mod must name all that they need, and no more. The
  # root's commands run their tests.
  if grep -q "=> ./$m\$" "$root/go.mod"; then
    "$go" mod tidy -diff
    continue
  fi
  commands=$("$go" list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./...)
  [ -z "$commands" ] || "$go" build -o "$root/bin/" $commands
  rm -f "$root/out/failed-once.txt"
  "$root/bin/gotestsum" --format pkgname-and-test-fails --hide-summary=output --rerun-fails=1 --rerun-fails-max-failures=3 \
    --rerun-fails-run-root-test --rerun-fails-report "$root/out/failed-once.txt" --packages ./... -- -short -count 1
  python3 "$root/mk/flaky.py" go "$root/out/failed-once.txt"
done
