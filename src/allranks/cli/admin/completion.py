"""`allranks completion`: print a shell's completion script.

At each TAB the script calls `allranks __complete SHELL WORD…`, which `complete_words` answers.
"""

from __future__ import annotations

import argparse

_BASH = """\
_allranks() {
    local kind="" line
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ -z $kind ]]; then kind=$line; else COMPREPLY+=("$line"); fi
    done < <("${COMP_WORDS[0]/#\\~/$HOME}" __complete bash \\
        "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    case $kind in
        files) ;;
        folders) compopt +o default +o bashdefault -o dirnames 2>/dev/null ;;
        *) compopt +o default +o bashdefault 2>/dev/null ;;
    esac
}
complete -o default -o bashdefault -F _allranks allranks
"""

_ZSH = """\
#compdef allranks
_allranks() {
    local -a reply
    local kind
    reply=("${(@f)$(${~words[1]} __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    kind=$reply[1]
    shift reply
    (( $#reply )) && _describe allranks reply
    case $kind in
        files) compset -P '*='; _files ;;
        folders) compset -P '*='; _files -/ ;;
    esac
}
if [[ $funcstack[1] == _allranks ]]; then
    _allranks "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
    compdef _allranks allranks
fi
"""

_FISH = """\
function __allranks_complete
    set -l words (commandline -opc)
    set -l reply (command $words[1] __complete fish $words[2..-1] (commandline -ct) 2>/dev/null)
    set -l before (string match -r '^.*=' -- (commandline -ct))
    set -l path (string replace -r '^.*=' '' -- (commandline -ct))
    switch "$reply[1]"
        case files
            printf "$before%s\n" (__fish_complete_path "$path")
        case folders
            printf "$before%s\n" (__fish_complete_directories "$path")
    end
    string join \\n -- $reply[2..-1]
end
complete -c allranks -f -a '(__allranks_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_EPILOG = """\
bash: add this line to ~/.bashrc
  eval "$(allranks completion bash)"

zsh: add this line to ~/.zshrc
  eval "$(allranks completion zsh)"

fish: run this once
  allranks completion fish > ~/.config/fish/completions/allranks.fish
"""


def completion_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=[*SCRIPTS], help="your shell")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG


def completion(options: argparse.Namespace) -> int:
    print(SCRIPTS[options.shell], end="")
    return 0
