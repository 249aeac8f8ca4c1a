# Completion of holdfast in bash, from 3.2 on. It needs nothing else, such as the package
# bash-completion. Nothing that was typed is evaluated: the words go to holdfast as they are.

__holdfast_complete() {
  local kind= word= about=
  COMPREPLY=()
  while IFS=$'\t' read -r word about; do
    if [[ -z $kind ]]; then
      kind=$word
    else
      COMPREPLY+=("$word")
    fi
  done < <(command holdfast __complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$2" 2>/dev/null)
  case $kind in
  program)
    while IFS= read -r word; do
      COMPREPLY+=("$word")
    done < <(compgen -c -- "$2")
    compopt -o filenames 2>/dev/null # so that they are quoted
    ;;
  words)
    # Files, which bash would complete now, cannot stand there.
    [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt +o default 2>/dev/null
    ;;
  esac
}

complete -o default -F __holdfast_complete holdfast
