
# Names at another machine for words such as host:pa, by the program itself.
function __packtrain_places
    set -l word (string unescape -- (commandline --current-token --cut-at-cursor))
    string match --quiet '*:*' -- $word
    or return 1
    packtrain completions -- (commandline --tokenize --cut-at-cursor --current-process) $word 2>/dev/null
end
# Whether the word names another machine, where files of this one do not count.
function __packtrain_is_remote
    __fish_seen_subcommand_from cp verify
    and string match --quiet --regex '^[^/]+:' -- (commandline --current-token --cut-at-cursor)
end
complete -c packtrain -n __packtrain_is_remote --no-files -a "(__packtrain_places)"
