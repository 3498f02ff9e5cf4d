# shellcheck shell=sh
# Start programs in the container, and import packages; print what is wrong: a line for each program, with its name and
# what it lacks, and after the word imports what the program on standard input prints.
# Usage: PYTHON REQUEST NAME...
#   PYTHON, REQUEST  import packages with this Python; empty: don't
#
# A program is started up to its own code: the kernel finds the interpreter of a script, and the loader the libraries.
# Whether --version means anything differs from program to program, and many need seconds for it.
python=$1 request=$2
shift 2

# Print the interpreter of a script, as far as the kernel doesn't look for it.
interpreter() {
    # the second line is pip's, for paths that are too long for the first
    { IFS= read -r first && IFS= read -r second; } <"$1" || :
    case $first in
        '#!'*/env\ -S*) set -f && eval "set -- ${first#*-S}" ;;
        '#!'*/env\ *) set -f && eval "set -- ${first#*/env }" ;;
        '#!/bin/sh') case $second in "'''exec' "*) eval "set -- ${second#"'''exec' "}" ;; *) set -- ;; esac ;;
        *) set -- ;;
    esac
    printf '%s' "${1:-}"
}

for name; do
    program=$(command -v "$name") || { printf '%s\tprogram\t\n' "$name" && continue; }
    # not a builtin
    [ "${program#/}" != "$program" ] || continue
    interpreter=$(interpreter "$program" 2>/dev/null)
    if [ -n "$interpreter" ] && ! command -v "$interpreter" >/dev/null; then
        printf '%s\tinterpreter\t%s\n' "$name" "$interpreter"
        continue
    fi
    # an image may lack these programs
    if ! command -v timeout >/dev/null || ! command -v env >/dev/null; then
        continue
    fi
    # with this variable the loader of glibc ends after it has printed the libraries; others ignore it
    said=$(timeout 10 env LD_TRACE_LOADED_OBJECTS=1 "$program" --version </dev/null 2>&1)
    case $?,$said in
        12[67],env:*) printf '%s\tstart\t%s\n' "$name" "$said" | head -n 1 ;;
        *' => not found'*) printf '%s\n' "$said" | sed -n "s/^\s*\(.*\) => not found.*/$name\tlibrary\t\1/p" ;;
    esac
done
[ -z "$request" ] || printf 'imports\t%s\n' "$("$python" - "$request")"
