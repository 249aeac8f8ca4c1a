# What runs before each block of commands of the documents, so that all of it can be tried.
#
# Somebody holds the lock "deploy" all the time, as an RWMutex like holdfast run does.

holdfast run --lock deploy -- sleep 600 &
somebody=$!
trap 'kill $somebody && wait $somebody || true' EXIT
until holdfast inspect deploy >/dev/null 2>&1; do sleep 0.1; done

# What takes minutes is only built: .ci/run tests and runs it. What there is only after a
# release must be called as it is here.
go() {
  case "$1" in
    run) shift; [ "$1" != -race ] || shift; command go build -o /dev/null "$1" ;;
    test) shift; command go list "${@: -1}" >/dev/null ;;
    get | install)
      local path=${2%@latest}
      case "$path" in
        github.com/holdfast-go/holdfast*)
          local folder=$ROOT${path#github.com/holdfast-go/holdfast}
          (cd "$folder" && command go list . | grep -qx "$path")
          [ "$1" = install ] || [ "$path" = "$(awk '$1 == "module" {print $2}' "$folder/go.mod")" ]
          ;;
        *) command go list -m "$path" >/dev/null ;;
      esac
      ;;
    *) command go "$@" ;;
  esac
}

# What goes on until Ctrl-C gets it.
holdfast() {
  case " $* " in
    *" --watch "*) timeout --preserve-status --signal INT 2 holdfast "$@" ;;
    *) command holdfast "$@" ;;
  esac
}

git() { [ "$*" = "clone https://github.com/holdfast-go/holdfast" ]; }
make() { command make --dry-run "$@"; }
