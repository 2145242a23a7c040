#!/bin/sh
# Says whether a machine is what a session needs. Run it there, as the session's user, in the directory where workers run:
#
#   docker run --rm -i IMAGE sh -s -- [CHECK...] <images/check.sh
#
# CHECK  cli git ffmpeg browser workspace supervisor (all of these unless some are named); sudo no-sudo
#
# Each check is one line, `ok` or `FAILED`, and what there is to say. The code is 1 when one failed, 2 when there is no such check.
set -u

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

need() {
    for program in "$@"; do
        command -v "$program" >/dev/null || {
            echo "$program is not there"
            return 1
        }
    done
}

check_cli() {
    need devin || return 1
    # What the CLI leaves in a home is not for sessions.
    HOME=$scratch/home
    mkdir "$HOME"
    devin --version || return 1
    devin worker start --help >"$scratch/help" || return 1
    grep -q -e --session "$scratch/help" || {
        echo "its \`worker start\` has no --session"
        return 1
    }
}

check_git() {
    need git || return 1
    git init -q "$scratch/one" 2>&1 &&
        git -C "$scratch/one" -c user.name=check -c user.email=check@localhost commit -q --allow-empty -m check &&
        git clone -q "$scratch/one" "$scratch/two" &&
        test "$(git -C "$scratch/two" log --format=%s)" = check || return 1
    test -x "$(git --exec-path)/git-remote-https" || {
        echo "git cannot speak https"
        return 1
    }
    test -s /etc/ssl/certs/ca-certificates.crt || {
        echo "there are no certificates to trust"
        return 1
    }
    git --version
}

check_ffmpeg() {
    need ffmpeg || return 1
    ffmpeg -v error -f lavfi -i testsrc=duration=1:size=320x240:rate=10 "$scratch/video.mp4" &&
        ffmpeg -v error -i "$scratch/video.mp4" -f null - &&
        ffmpeg -version | head -n 1
}

# A page that is served, and of which the browser must run the script.
check_browser() {
    browser=${DEVIN_CHROME_PATH:-chromium}
    need "$browser" python3 timeout || return 1
    mkdir "$scratch/site"
    echo '<!doctype html><body><script>document.body.append("the answer is " + 6 * 7)</script>' >"$scratch/site/index.html"
    python3 -u -m http.server --bind 127.0.0.1 --directory "$scratch/site" 0 >"$scratch/server" 2>&1 &
    server=$!
    left=100
    until grep -q 'port [0-9]' "$scratch/server"; do
        left=$((left - 1))
        if [ "$left" -eq 0 ] || ! kill -0 "$server"; then
            cat "$scratch/server"
            return 1
        fi
        sleep 0.1
    done
    port=$(sed -n 's/.*port \([0-9]*\).*/\1/p' "$scratch/server")
    timeout 120 "$browser" --headless --user-data-dir="$scratch/profile" --dump-dom "http://127.0.0.1:$port/" \
        >"$scratch/page" 2>"$scratch/browser"
    kill "$server"
    grep -q 'the answer is 42' "$scratch/page" || {
        grep -v dbus "$scratch/browser" | tail -n 5
        echo "it did not show the page"
        return 1
    }
    "$browser" --version 2>/dev/null
}

check_workspace() {
    echo "$PWD, as $(id -un)"
    test "$PWD" != / || {
        echo "that is no workspace"
        return 1
    }
    mkdir -p repos && file=$(mktemp repos/check.XXXXXX) && printf '#!/bin/sh\n' >"$file" && chmod +x "$file" && "./$file" &&
        rm "$file" || return 1
    file=$(mktemp "${HOME:?there is no home}/check.XXXXXX") && rm "$file"
}

# What supervisor.sh says that it needs.
check_supervisor() {
    need sh cat mv rm sleep date wc env || return 1
    if env --default-signal=INT true 2>/dev/null; then
        need setsid || need perl
    else
        need perl
    fi
}

check_sudo() {
    need sudo || return 1
    test "$(sudo -n id -u)" = 0
}

check_no_sudo() {
    test "$(id -u)" != 0 || {
        echo "this is root"
        return 1
    }
    ! sudo -n true 2>/dev/null || {
        echo "sudo lets $(id -un) do everything"
        return 1
    }
}

run() {
    case $1 in
        cli) check_cli || return 1 ;;
        git) check_git || return 1 ;;
        ffmpeg) check_ffmpeg || return 1 ;;
        browser) check_browser || return 1 ;;
        workspace) check_workspace || return 1 ;;
        supervisor) check_supervisor || return 1 ;;
        sudo) check_sudo || return 1 ;;
        no-sudo) check_no_sudo || return 1 ;;
        *) return 2 ;;
    esac
}

[ $# -gt 0 ] || set -- cli git ffmpeg browser workspace supervisor
worst=0
for check in "$@"; do
    # Programs that read their input would read the rest of this script, if it comes that way.
    said=$(run "$check" </dev/null 2>&1)
    case $? in
        0) echo "ok $check: $said" ;;
        2)
            echo "there is no check \`$check\`" >&2
            exit 2
            ;;
        *)
            echo "FAILED $check: $said"
            worst=1
            ;;
    esac
done
exit "$worst"
