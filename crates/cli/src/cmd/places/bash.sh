
# Names at another machine for words such as host:pa, by the program itself.
_packtrain_places() {
    local line=${COMP_LINE:0:COMP_POINT} program=$1 out name
    if [[ $line == *:* ]]; then
        type -P -- "$program" >/dev/null || program=packtrain
        if out=$("$program" completions --breaks "$COMP_WORDBREAKS" --line "$line" 2>/dev/null); then
            COMPREPLY=()
            while IFS= read -r name; do
                [[ -n $name ]] && COMPREPLY+=("$name")
            done <<<"$out"
            # No files of this machine, and no space after a directory.
            compopt +o default +o bashdefault 2>/dev/null
            [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace 2>/dev/null
            return 0
        fi
    fi
    _packtrain "$@"
}
if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _packtrain_places -o nosort -o bashdefault -o default packtrain
else
    complete -F _packtrain_places -o bashdefault -o default packtrain
fi
