# Names at another machine for words such as host:pa, by the program itself.
_packtrain_places() {
    [[ $PREFIX == *:* ]] || return 1
    local out place
    local -a before dirs files
    before=("${(@Q)words[1,CURRENT-1]}")
    out=$("${before[1]}" completions -- "${before[@]}" "${(Q)PREFIX}" 2>/dev/null) || return 1
    for place in "${(@f)out}"; do
        case $place in
            '') ;;
            */) dirs+=("$place") ;;
            *) files+=("$place") ;;
        esac
    done
    (( $#dirs )) && compadd -S '' -- "${dirs[@]}"
    (( $#files )) && compadd -- "${files[@]}"
    return 0
}
