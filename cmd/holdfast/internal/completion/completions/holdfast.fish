# Completion of holdfast in fish. Nothing that was typed is evaluated: the words go to
# holdfast as they are.

function __holdfast_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l answer (command holdfast __complete $words[2..] "$current" 2>/dev/null)
    switch "$answer[1]"
        case program
            __fish_complete_command
            __fish_complete_path "$current"
        case files
            __fish_complete_path "$current"
        case words
            string join \n -- $answer[2..]
    end
end

complete -c holdfast -e
complete -c holdfast -f -a '(__holdfast_complete)'
