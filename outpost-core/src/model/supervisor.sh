#!/bin/sh
# Starts one worker, passes signals on to it, reaps, and writes down how it ended.
#
#   sh supervisor.sh RUN CWD BOOT AFTER PROGRAM [ARGUMENT...]
#
# RUN      an existing directory that belongs to this boot; files below appear in it, each by a rename
# CWD      the worker's working directory
# BOOT     a word that names this boot; it begins every file, so that one of an earlier boot is never taken for ours
# AFTER    `leave`: end when the worker has ended; `stay`: live on until TERM or INT, so that the disk can be saved;
#          `container`: end with the worker's code, as the first process of a container whose engine keeps code and log
#
# Standard input: lines that a POSIX shell evaluates (`export NAME='value'`), then a line `#end`. They are the worker's whole
# environment. They are read by the process that becomes the worker and by no other, so they are never in an argument
# list, in a file, or in the supervisor's memory. When the input ends before `#end`, its sender has died or was cut off:
# then no worker starts, and the code is 125. So it is when a shell cannot evaluate the lines.
#
# RUN/supervisor   BOOT PID START
# RUN/worker       BOOT PID START        the worker leads its own session and process group
# RUN/exit         BOOT CODE TIME        128 + n after signal n; 127 also when it could not be started, 126 without CWD, 125
#                                        without a whole environment; TIME in Unix seconds
# RUN/log          what worker and supervisor print; moved to RUN/log.1 when it is longer than 8 MiB. In a `container` there is
#                  none: it goes to the output that the supervisor was given
#
# OUTPOST_SHELL, if set, is the shell that becomes the worker, as words; else /bin/sh.
#
# START tells a process from a later one with the same number: field 22 of /proc/PID/stat, elsewhere `ps -o lstart` in UTC
# with its blanks as underscores, or `-`.
#
# Needs sh, cat, mv, rm, sleep, date, wc, env, and setsid or perl. The worker starts with every signal at its default if
# `env --default-signal` (GNU) or perl is there; else INT and QUIT stay ignored in it, as POSIX has it for background jobs.
set -u
mask=$(umask)
umask 077

cd "$1" || exit 125
cwd=$2 boot=$3 after=$4
shift 4
max_log_bytes=8388608
exec 3<&0 </dev/null
[ "$after" = container ] || exec >>log 2>&1
rm -f supervisor worker exit ./*.new

start_of() {
    start=-
    if [ -r "/proc/$1/stat" ]; then
        start=$(cat "/proc/$1/stat")
        # The name in parentheses can hold anything; what follows the last one is numbers.
        start=${start##*") "}
        start=$(set -f && set -- $start && shift 19 && echo "$1")
    else
        # A date: in one time zone, so that the same start reads the same whoever asks, and when.
        start=$(set -f && set -- $(LC_ALL=C TZ=UTC0 ps -o lstart= -p "$1" 2>/dev/null) && IFS=_ && echo "$*")
    fi
    [ -n "$start" ] || start=-
}

publish() {
    printf '%s\n' "$2" >"$1.new" && mv -f "$1.new" "$1"
}

# Runs in the process that becomes the worker: a shell with no environment, whose standard input is the caller's.
launch='
cd "$1" || exit 126
shift
end_seen=
lines=
while [ -z "$end_seen" ] && IFS= read -r line; do
    case $line in
        "#end") end_seen=1 ;;
        *) lines="$lines$line
" ;;
    esac
done
if [ -z "$end_seen" ]; then
    echo "outpost: the environment ended before #end; the worker is not started" >&2
    exit 125
fi
unset PWD OLDPWD SHLVL _ end_seen line
eval "unset lines
$lines" || {
    echo "outpost: the environment cannot be evaluated; the worker is not started" >&2
    exit 125
}
exec </dev/null
# bash exports _ and SHLVL whatever one does. A program with = in its path cannot be given to env.
case $1 in
    *=*) exec "$@" ;;
    *) exec env -u _ -u SHLVL "$@" ;;
esac
'

detach() {
    perl_detach='use POSIX (); POSIX::setsid(); $SIG{$_} = "DEFAULT" for qw(HUP INT QUIT);
        exec { $ARGV[0] } @ARGV or exit 127'
    if command -v setsid >/dev/null && env --default-signal=INT true 2>/dev/null; then
        exec setsid env -i --default-signal=HUP,INT,QUIT "$@"
    elif command -v perl >/dev/null; then
        exec perl -e "$perl_detach" env -i "$@"
    elif command -v setsid >/dev/null; then
        exec setsid env -i "$@"
    fi
    echo "outpost: neither setsid nor perl is here: install util-linux"
    exit 127
}

worker= keeper= interrupted= told= phase=serving
# While the worker lives a signal is for it; afterwards for the supervisor.
pass_on() {
    interrupted=1
    case $phase in
        serving)
            told=$1
            # It has no group of its own until it has made its session.
            [ -z "$worker" ] || kill -s "$1" -- "-$worker" 2>/dev/null || kill -s "$1" "$worker" 2>/dev/null
            ;;
        ending) told=$1 ;;
        staying)
            # `$!` and not a variable, which is set only after the next look for signals; KILL, because a process that was
            # only just forked can take TERM with its parent's trap and forget it.
            [ "$!" = "$keeper" ] || kill -s KILL "$!" 2>/dev/null
            exit 0
            ;;
    esac
}
trap 'pass_on TERM' TERM
trap 'pass_on INT' INT
trap '' HUP

start_of $$
publish supervisor "$boot $$ $start"

shell=${OUTPOST_SHELL:-/bin/sh}
path=${PATH:-/usr/local/bin:/usr/bin:/bin}
(
    trap - TERM INT HUP
    umask "$mask"
    detach "PATH=$path" $shell -c "$launch" outpost-worker "$cwd" "$@"
) <&3 3<&- &
worker=$!
[ -z "$told" ] || pass_on "$told"
exec 3<&-
start_of "$worker"
publish worker "$boot $worker $start"

# Cuts the log while the worker lives. The worker appends, so it goes on at the new end.
keep_log() {
    trap '[ "$!" = "$worker" ] || kill -s KILL "$!" 2>/dev/null; exit 0' TERM
    while kill -0 "$worker" 2>/dev/null; do
        sleep 5 &
        wait "$!"
        if [ "$(wc -c <log)" -gt "$max_log_bytes" ]; then
            cat log >log.1
            : >log
        fi
    done
}
if [ "$after" != container ]; then
    keep_log &
    keeper=$!
fi

# `wait` ends early when a signal comes; the second one then has the worker's code, unless the first had it already.
while :; do
    interrupted=
    wait "$worker"
    code=$?
    [ -n "$interrupted" ] || break
    if ! kill -0 "$worker" 2>/dev/null; then
        wait "$worker" 2>/dev/null
        second=$?
        [ "$second" -eq 127 ] || code=$second
        break
    fi
done
phase=ending told=
publish exit "$boot $code $(date +%s)"
if [ -n "$keeper" ]; then
    # Together, or bash says between the two that it was terminated.
    {
        kill "$keeper"
        wait "$keeper"
    } 2>/dev/null
fi

if [ "$after" = stay ]; then
    phase=staying
    while [ -z "$told" ]; do
        sleep 3600 &
        wait "$!"
    done
fi
[ "$after" != container ] || exit "$code"
exit 0
