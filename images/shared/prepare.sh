#!/bin/sh
# Makes of an image one in which sessions can work; run as root while it is built:
#
#   sh prepare.sh USER SUDO
#
# USER  whom the worker runs as; made unless it exists, `root` included
# SUDO  1: USER may do everything through sudo, without a password; 0: sudo is nobody's
set -eu

die() {
    echo "prepare: $*" >&2
    exit 1
}

[ $# -eq 2 ] || die "usage: prepare.sh USER SUDO"
user=$1 sudo=$2
case $user in
    *[!a-z0-9_-]* | [!a-z]* | '') die "\`$user\` is no name for a user: small letters, digits, - and _" ;;
esac

id "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"

# Workers run here; a session's repositories lie in `repos`.
workspace=/mnt/repos
mkdir -p "$workspace/repos"
chown "$user:" "$workspace" "$workspace/repos"

case $sudo in
    0) ;;
    1)
        command -v visudo >/dev/null || die "sudo is wanted and not installed"
        mkdir -p /etc/sudoers.d
        echo "$user ALL=(ALL:ALL) NOPASSWD: ALL" >/etc/sudoers.d/outpost
        chmod 440 /etc/sudoers.d/outpost
        visudo --check --quiet
        ;;
    *) die "SUDO is 0 or 1, not \`$sudo\`" ;;
esac

# Chromium's own sandbox needs CAP_SYS_ADMIN or the right to make user namespaces. Docker gives a container neither, and then Chromium
# ends at once with "No usable sandbox" (podman gives the second). The container is the sandbox. Debian's start script reads these
# files for whoever starts /usr/bin/chromium; it cares for a small /dev/shm by itself.
mkdir -p /etc/chromium.d
cat >/etc/chromium.d/outpost <<'END'
export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox"
END
