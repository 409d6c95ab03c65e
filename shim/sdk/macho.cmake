# lumelift_add_macho(TARGET KIND dylib|executable OUTPUT FILE SOURCES FILE... [STUBS FILE...])
#
# STUBS are further .tbd files, for programs of the tests that call more of libSystem than the product may.
#
# Builds one universal Mach-O file for guests: macOS 13.0 or later, signed ad hoc, without C++ runtime. On macOS with
# Xcode's tools (arm64, arm64e, x86_64); elsewhere with clang, ld64.lld and llvm-lipo against the stubs beside this file
# (arm64, x86_64; only Apple's linker writes a trustworthy arm64e slice). Equal sources and tools give equal bytes:
# no debug information, no paths, and the linker derives the UUID from the content.

# Internal cache entries, because functions see the variables of whoever calls them.
set(LUMELIFT_SDK ${CMAKE_CURRENT_LIST_DIR} CACHE INTERNAL "")
set(LUMELIFT_MACHO_MINIMUM 13.0 CACHE INTERNAL "")
set(LUMELIFT_MACHO_FLAGS -std=c++20 -O2 -g0 -ffreestanding -fvisibility=hidden -fno-exceptions -fno-rtti
  -fno-stack-protector -fno-threadsafe-statics -fno-ident -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
  CACHE INTERNAL "")

if(CMAKE_HOST_APPLE)
  set(LUMELIFT_MACHO_SLICES arm64 arm64e x86_64 CACHE INTERNAL "")
  set(LUMELIFT_MACHO_COMPILER ${CMAKE_CXX_COMPILER} CACHE INTERNAL "")
  set(LUMELIFT_MACHO_LINKER ld CACHE INTERNAL "")
  find_program(LUMELIFT_MACHO_LIPO lipo REQUIRED)
else()
  set(LUMELIFT_MACHO_SLICES arm64 x86_64 CACHE INTERNAL "")
  set(llvm_hints /usr/lib/llvm-22/bin)
  find_program(LUMELIFT_MACHO_COMPILER NAMES clang-22 clang HINTS ${llvm_hints} REQUIRED)
  find_program(LUMELIFT_MACHO_LINKER NAMES ld64.lld-22 ld64.lld HINTS ${llvm_hints} REQUIRED)
  find_program(LUMELIFT_MACHO_LIPO NAMES llvm-lipo-22 llvm-lipo HINTS ${llvm_hints} REQUIRED)
endif()

function(lumelift_add_macho target)
  cmake_parse_arguments(ARG "" "KIND;OUTPUT" "SOURCES;STUBS" ${ARGN})
  if(CMAKE_HOST_APPLE)
    _lumelift_macho_by_xcode(${target} ${ARG_KIND} ${ARG_OUTPUT} ${ARG_SOURCES})
  else()
    _lumelift_macho_by_lld(${target} ${ARG_KIND} ${ARG_OUTPUT} "${ARG_STUBS}" ${ARG_SOURCES})
  endif()
endfunction()

function(_lumelift_macho_by_xcode target kind output)
  if(kind STREQUAL "dylib")
    add_library(${target} SHARED ${ARGN})
    set_target_properties(${target} PROPERTIES INSTALL_NAME_DIR "@rpath" BUILD_WITH_INSTALL_NAME_DIR ON
      MACHO_CURRENT_VERSION ${PROJECT_VERSION} MACHO_COMPATIBILITY_VERSION 0.1)
  else()
    add_executable(${target} ${ARGN})
  endif()
  get_filename_component(folder ${output} DIRECTORY)
  get_filename_component(name ${output} NAME)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE LUMELIFT_VERSION="${PROJECT_VERSION}")
  target_compile_options(${target} PRIVATE ${LUMELIFT_MACHO_FLAGS} -mmacosx-version-min=${LUMELIFT_MACHO_MINIMUM})
  target_link_options(${target} PRIVATE -nodefaultlibs -lSystem -lobjc -Wl,-dead_strip -Wl,-x
    -mmacosx-version-min=${LUMELIFT_MACHO_MINIMUM})
  set_target_properties(${target} PROPERTIES OSX_ARCHITECTURES "arm64;arm64e;x86_64" PREFIX "" SUFFIX ""
    OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${folder} RUNTIME_OUTPUT_DIRECTORY ${folder})
endfunction()

function(_lumelift_macho_by_lld target kind output stubs)
  get_filename_component(folder ${output} DIRECTORY)
  get_filename_component(name ${output} NAME)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.hpp ${PROJECT_SOURCE_DIR}/shim/*.hpp
    ${LUMELIFT_SDK}/*.hpp ${LUMELIFT_SDK}/usr/lib/*.tbd)
  set(thin_files)
  foreach(slice ${LUMELIFT_MACHO_SLICES})
    set(work ${CMAKE_CURRENT_BINARY_DIR}/${target}.dir/${slice})
    file(MAKE_DIRECTORY ${work} ${folder})
    set(objects)
    foreach(source ${ARGN})
      get_filename_component(source ${source} ABSOLUTE)
      get_filename_component(stem ${source} NAME_WE)
      set(object ${work}/${stem}.o)
      add_custom_command(OUTPUT ${object}
        COMMAND ${LUMELIFT_MACHO_COMPILER} -target ${slice}-apple-macos${LUMELIFT_MACHO_MINIMUM} -x c++
          ${LUMELIFT_MACHO_FLAGS} -nostdlibinc -I${PROJECT_SOURCE_DIR} -DLUMELIFT_VERSION="${PROJECT_VERSION}"
          -c ${source} -o ${object}
        DEPENDS ${source} ${headers}
        COMMENT "Compiling ${stem} for macOS ${slice}"
        VERBATIM)
      list(APPEND objects ${object})
    endforeach()
    # The signature's identifier is the output's file name, so each slice is linked under the final one.
    set(thin ${work}/${name})
    set(kind_options)
    if(kind STREQUAL "dylib")
      set(kind_options -dylib -install_name @rpath/${name} -current_version ${PROJECT_VERSION}
        -compatibility_version 0.1)
    endif()
    add_custom_command(OUTPUT ${thin}
      COMMAND ${LUMELIFT_MACHO_LINKER} -arch ${slice} -platform_version macos ${LUMELIFT_MACHO_MINIMUM} 14.0
        ${kind_options} -adhoc_codesign -dead_strip -x -fixup_chains -syslibroot ${LUMELIFT_SDK} ${objects}
        ${stubs} -lSystem -lobjc -o ${thin}
      DEPENDS ${objects} ${headers} ${stubs}
      COMMENT "Linking ${name} for macOS ${slice}"
      VERBATIM)
    list(APPEND thin_files ${thin})
  endforeach()
  add_custom_command(OUTPUT ${output}
    COMMAND ${LUMELIFT_MACHO_LIPO} -create ${thin_files} -output ${output}
    DEPENDS ${thin_files}
    COMMENT "Joining ${name}"
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS ${output})
endfunction()
