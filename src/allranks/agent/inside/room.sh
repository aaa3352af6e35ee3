# The first process of a node's container. It does what the agent says on standard input:
#   start N    run N.sh of this folder, in a process group of its own
#   beat       say that it is there, and which have ended without a word of their own
#   kill N     send SIGKILL to that group
#   NAME       send that signal to every such group
# says on standard output that it is there and how each ended, and ends with its input, and the
# container with it: whatever becomes of the agent, or of the program that runs containers.
folder=$1
set -m
exec 3>&1 1>&2
trap : TERM INT HUP
echo allranks is up >&3
while read -r what number; do
    case $what in
    start)
        (
            # It outlasts a signal to its group, to say how the others of it ended.
            trap : TERM INT HUP QUIT USR1 USR2 XCPU
            (. "$folder/$number.sh") 3>&-
            echo "ended $number $?" >&3
        ) </dev/null &
        pids[number]=$!
        ;;
    beat)
        echo beat >&3
        for number in "${!pids[@]}"; do
            kill -s 0 "${pids[number]}" 2>/dev/null && continue
            echo "ended $number 137" >&3
            unset "pids[number]"
        done
        ;;
    kill)
        kill -s KILL -- "-${pids[number]}" 2>/dev/null
        ;;
    *)
        for group in $(jobs -p); do
            kill -s "$what" -- "-$group" 2>/dev/null
        done
        ;;
    esac
done
exit 0
