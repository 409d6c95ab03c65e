# Writes SHA256SUMS and provenance.json beside the built guest files. Variables: FOLDER, FILES (comma-separated),
# VERSION, COMPILER, LINKER, LIPO.

function(first_line variable)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
  if(NOT status EQUAL 0)  # Apple's ld and lipo know only this one
    execute_process(COMMAND ${ARGV1} -v OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
  endif()
  string(REGEX REPLACE "\n.*" "" text "${text}")
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

first_line(compiler ${COMPILER} --version)
first_line(linker ${LINKER} --version)
first_line(lipo ${LIPO} --version)

set(sums "")
set(entries "")
string(REPLACE "," ";" FILES "${FILES}")
foreach(name ${FILES})
  set(file ${FOLDER}/${name})
  file(SHA256 ${file} whole)
  file(SIZE ${file} size)
  string(APPEND sums "${whole}  ${name}\n")
  execute_process(COMMAND ${LIPO} -archs ${file} OUTPUT_VARIABLE slices OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(slices)
  set(slice_entries "")
  foreach(slice ${slices})
    set(thin ${FOLDER}/${name}.${slice}.tmp)
    execute_process(COMMAND ${LIPO} ${file} -thin ${slice} -output ${thin} COMMAND_ERROR_IS_FATAL ANY)
    file(SHA256 ${thin} sum)
    file(REMOVE ${thin})
    list(APPEND slice_entries "        \"${slice}\": \"${sum}\"")
  endforeach()
  list(JOIN slice_entries ",\n" slice_entries)
  list(APPEND entries "    {
      \"name\": \"${name}\",
      \"size\": ${size},
      \"sha256\": \"${whole}\",
      \"slices\": {
${slice_entries}
      }
    }")
endforeach()
list(JOIN entries ",\n" entries)

file(WRITE ${FOLDER}/SHA256SUMS "${sums}")
file(WRITE ${FOLDER}/provenance.json "{
  \"schema\": 1,
  \"version\": \"${VERSION}\",
  \"minimum_macos\": \"13.0\",
  \"tools\": {
    \"compiler\": \"${compiler}\",
    \"linker\": \"${linker}\",
    \"lipo\": \"${lipo}\"
  },
  \"files\": [
${entries}
  ]
}
")
