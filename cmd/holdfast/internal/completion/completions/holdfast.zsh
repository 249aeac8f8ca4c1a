#compdef holdfast

# Completion of holdfast in zsh. Nothing that was typed is evaluated: the words go to
# holdfast as they are.

_holdfast() {
  local -a answer found
  local line
  answer=("${(@f)$(command holdfast __complete "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
  case $answer[1] in
    program) _alternative 'commands:command:_command_names -e' 'files:file:_files' ;;
    files) _files ;;
    words)
      for line in "${(@)answer[2,-1]}"; do
        found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
      done
      _describe holdfast found
      ;;
  esac
}

(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }

# In a directory of $fpath, this file is the function itself.
if [[ $funcstack[1] == _holdfast ]]; then
  _holdfast
else
  compdef _holdfast holdfast
fi
