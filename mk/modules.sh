#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats, vets, builds and tests Go modules of the tree: the named ones, or all except the root's.
# Modules that the root requires are tested with the root. A module all of whose packages need a
# build tag only pins other projects' programs: this script parses its files and checks its go.sum.
# It runs a failing test once more, and lists it in out/failed-once.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
go=${GO:-go}
[ "$go" = go ] || export PATH="$(dirname "$go"):$PATH"
export GOWORK=off # each module by its own go.mod, as for a user outside the tree
mkdir -p bin out
"$go" build -o bin/gotestsum gotest.tools/gotestsum # with the version in the root's go.mod
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
  # Other projects require these modules from a proxy, so their go.mod must name exactly what they
  # need. Their tests run with the root's.
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
