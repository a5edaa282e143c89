#!/bin/sh
# Makes a Debian package of netcraq-switch alone, and tries what is in it:
#
#     switch/package/deb.sh FOLDER [ARCHITECTURE]
#
# The same commit gives the same bytes. What it needs: Go, git, dpkg-deb, gzip.
set -eu
out=${1:?a folder for the package}
go=${GO:-go}
own=$(dpkg --print-architecture)
arch=${2:-$own}
cd "$(dirname "$0")/../.."
mkdir -p "$out"
out=$(cd "$out" && pwd)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
version=0.1.0+git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).$(git rev-parse --short=8 HEAD)
case $arch in
armhf) goarch=arm ;;
i386) goarch=386 ;;
*) goarch=$arch ;;
esac

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
root=$tree/root
install -d "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/man/man8" \
	"$root/usr/share/doc/netcraq-switch"
CGO_ENABLED=0 GOARCH=$goarch "$go" build -trimpath -ldflags "-s -w" \
	-o "$root/usr/bin/netcraq-switch" ./switch/cmd/netcraq-switch
gzip -9n <switch/cmd/netcraq-switch/netcraq-switch.8 \
	>"$root/usr/share/man/man8/netcraq-switch.8.gz"
install -m 644 docs/switch.md "$root/usr/share/doc/netcraq-switch/README.md"
install -m 644 LICENSE "$root/usr/share/doc/netcraq-switch/copyright"
cat >"$root/DEBIAN/control" <<END
Package: netcraq-switch
Version: $version
Architecture: $arch
Maintainer: The NetCRAQ authors <netcraq@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Suggests: mininet
Section: net
Priority: optional
Description: P4 software switch, in the kernel or in a process
 Runs P4_16 programs for v1model, as p4c-bm2-ss compiles them, on network
 interfaces: as eBPF in the kernel, or in the process. It serves P4Runtime and
 BMv2's Thrift interface, and takes the command line of simple_switch_grpc.
END
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
package=$out/netcraq-switch_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null

# What was packed runs, and says what it is.
dpkg-deb -x "$package" "$tree/tried"
gzip -t "$tree/tried/usr/share/man/man8/netcraq-switch.8.gz"
[ "$arch" != "$own" ] || "$tree/tried/usr/bin/netcraq-switch" --version
echo "$package"
