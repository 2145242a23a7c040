#!/bin/sh
# Installs the Devin CLI by its manifest, for everybody on this machine:
#
#   sh install-devin.sh MANIFEST_URL [PREFIX]
#
# MANIFEST_URL  https, or http on this machine; it may hold no credential, because a build argument stays readable in the image
# PREFIX        default /usr/local; the CLI goes to PREFIX/lib/devin, and PREFIX/bin/devin leads to it
#
# The manifest names per platform a `url` and its `sha256`. What is there is an archive with `bin/devin` in it, or the executable
# itself. Nothing is installed unless the checksum is right and the CLI runs and can serve a single session. Devin's own installer
# ends in a set-up that asks questions, so it is not used.
#
# Needs curl, jq, sha256sum, tar, gzip.
set -eu

die() {
    echo "install-devin: $*" >&2
    exit 1
}

# Prints which schemes may be used from an address on, or dies.
schemes_of() {
    case $1 in
        *[?#]* | *://*@*) die "the $2's address has a credential or a query: it would stay readable in the image" ;;
        https://*) echo https ;;
        http://127.0.0.1[:/]* | http://localhost[:/]*) echo http,https ;;
        *) die "the $2's address must begin with https:// (http is for this machine only)" ;;
    esac
}

download() {
    curl --fail --silent --show-error --location --proto "=$1" --proto-redir "=$1" \
        --retry 3 --connect-timeout 20 --max-time 600 --output "$3" "$2"
}

case $# in
    1 | 2) ;;
    *) die "usage: install-devin.sh MANIFEST_URL [PREFIX]" ;;
esac
manifest_url=$1 prefix=${2:-/usr/local}
for program in curl jq sha256sum tar gzip; do
    command -v "$program" >/dev/null || die "$program is needed"
done

os=$(uname -s)
[ "$os" = Linux ] || die "this installs on Linux only, and here is $os"
machine=$(uname -m)
case $machine in
    x86_64 | amd64) arch=x86_64 ;;
    aarch64 | arm64) arch=aarch64 ;;
    *) die "there is no Devin CLI for $machine" ;;
esac

umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

schemes=$(schemes_of "$manifest_url" manifest)
download "$schemes" "$manifest_url" "$work/manifest" || die "the manifest cannot be had from $manifest_url"
# Names such as x86_64-unknown-linux, perhaps with more behind it.
# shellcheck disable=SC2016 # these are jq's variables
entry='(.platforms // .) | to_entries | map(select((.key | startswith($arch + "-")) and (.key | contains("linux")))) | first | .value'
field() {
    jq --raw-output --arg arch "$arch" "$entry | .$1 | select(type == \"string\")" "$work/manifest" 2>/dev/null ||
        die "the manifest is not what it should be"
}
url=$(field url)
sha256=$(field sha256 | tr 'A-F' 'a-f')
[ -n "$url" ] || die "the manifest has no Devin CLI for Linux on $arch"
printf '%s\n' "$sha256" | grep -Eqx '[0-9a-f]{64}' || die "the manifest has no SHA-256 for Linux on $arch"

# What an https manifest names must be https as well.
found_schemes=$(schemes_of "$url" "Devin CLI")
[ "$schemes" != https ] || [ "$found_schemes" = https ] || die "the manifest is https, and the Devin CLI's address is not"
download "$schemes" "$url" "$work/download" || die "the Devin CLI cannot be had from $url"
actual=$(sha256sum "$work/download")
actual=${actual%% *}
[ "$actual" = "$sha256" ] ||
    die "wrong checksum of the Devin CLI: the manifest says $sha256, the download has $actual; nothing was installed"

mkdir "$work/devin"
case $(head -c 4 "$work/download" | od -An -tx1 | tr -d ' \n') in
    1f8b*)
        tar --extract --gzip --no-same-owner --file "$work/download" --directory "$work/devin" ||
            die "the Devin CLI's archive cannot be unpacked"
        ;;
    7f454c46 | 2321*)
        mkdir "$work/devin/bin"
        mv "$work/download" "$work/devin/bin/devin"
        chmod 755 "$work/devin/bin/devin"
        ;;
    *) die "the Devin CLI is neither a gzip archive nor an executable" ;;
esac
[ -x "$work/devin/bin/devin" ] || die "the Devin CLI's archive has no executable bin/devin"
chmod -R a+rX,go-w "$work/devin"

# An image that builds and cannot serve is worse than none. The CLI gets a home of its own: what it leaves there is not for sessions.
try() {
    HOME="$work/home" "$work/devin/bin/devin" "$@" </dev/null
}
mkdir "$work/home"
version=$(try --version) || die "the Devin CLI does not run on this machine"
case $version in
    "devin "*) ;;
    *) die "what was downloaded says \`$version\` when it is asked for its version: that is not the Devin CLI" ;;
esac
help=$(try worker start --help) || die "this Devin CLI has no \`worker start\`"
case $help in
    *--session*) ;;
    *) die "this Devin CLI is too old: its \`worker start\` has no --session" ;;
esac

mkdir -p "$prefix/lib" "$prefix/bin"
rm -rf "$prefix/lib/devin"
mv "$work/devin" "$prefix/lib/devin"
ln -sf ../lib/devin/bin/devin "$prefix/bin/devin"
echo "installed $version, SHA-256 $sha256"
