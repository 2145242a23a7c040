#!/bin/sh
# Makes a Debian as small as the registry's slim images, and prints it as a tar archive: sh base.sh SUITE
#
# Needs root and debootstrap.
set -eu
suite=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debootstrap --variant=minbase "$suite" "$work/root" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    exit 1
}
cat >"$work/root/etc/dpkg/dpkg.cfg.d/slim" <<'END'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
END
cat >"$work/root/etc/apt/sources.list" <<END
deb http://deb.debian.org/debian $suite main
deb http://deb.debian.org/debian $suite-updates main
deb http://deb.debian.org/debian-security $suite-security main
END
find "$work/root/usr/share/doc" -type f ! -name copyright -delete
rm -rf "$work"/root/usr/share/info/* "$work"/root/usr/share/locale/* "$work"/root/usr/share/man/* \
    "$work"/root/var/cache/apt/*.bin "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/* \
    "$work"/root/var/log/*.log
tar --create --one-file-system --numeric-owner --directory "$work/root" .
