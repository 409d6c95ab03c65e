# Completion of lumelift for bash 3.2 and later. The program itself says what can stand where the cursor is.
_lumelift() {
  local words=() word line typed=${COMP_WORDS[COMP_CWORD]} i
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    word=${word#[\"\']}
    words+=("${word//\\/}")
  done
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files | :folders)
        local kind=-f
        [ "$line" = :folders ] && kind=-d
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen "$kind" -- "${typed#=}")
        type compopt >/dev/null 2>&1 && compopt -o filenames 2>/dev/null
        ;;
      *) COMPREPLY+=("$(printf %q "${line%%$'\t'*}")") ;;
    esac
  done < <("${COMP_WORDS[0]}" complete -- "${words[@]}" 2>/dev/null)
}
complete -F _lumelift lumelift
