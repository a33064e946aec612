# Targets for people: `format` rewrites the sources as .clang-format says, `lint` runs clang-tidy over them.
file(GLOB_RECURSE quern_own_files CONFIGURE_DEPENDS
     ${CMAKE_CURRENT_SOURCE_DIR}/runtime/*.[ch] ${CMAKE_CURRENT_SOURCE_DIR}/codegen/*.[ch]
     ${CMAKE_CURRENT_SOURCE_DIR}/tests/*.[ch]
     ${CMAKE_CURRENT_SOURCE_DIR}/kernel_src/*.cu ${CMAKE_CURRENT_SOURCE_DIR}/kernel_src/*.cuh)
find_program(QUERN_CLANG_FORMAT NAMES clang-format-14 clang-format)
if(QUERN_CLANG_FORMAT)
  add_custom_target(format COMMAND ${QUERN_CLANG_FORMAT} -i ${quern_own_files} VERBATIM)
endif()

find_program(QUERN_CLANG_TIDY NAMES clang-tidy-14 clang-tidy)
find_program(QUERN_XARGS xargs)
if(QUERN_CLANG_TIDY AND QUERN_XARGS)
  set(lint_files ${quern_own_files})
  list(FILTER lint_files INCLUDE REGEX "/(runtime|codegen)/.*\\.c$")
  list(JOIN lint_files "\n" lint_text)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/lint_files.txt "${lint_text}\n")
  add_custom_target(lint
    COMMAND ${QUERN_XARGS} -a ${CMAKE_CURRENT_BINARY_DIR}/lint_files.txt -n 4 -P 2
            ${QUERN_CLANG_TIDY} --quiet -p ${CMAKE_CURRENT_BINARY_DIR}
    VERBATIM USES_TERMINAL)
endif()
