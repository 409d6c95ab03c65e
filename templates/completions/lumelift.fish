# Completion of lumelift for fish. The program itself says what can stand where the cursor is.
function __lumelift_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    for line in ($program complete -- $words (commandline -ct) 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline -ct)
            case ':folders'
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c lumelift -f -a '(__lumelift_complete)'
