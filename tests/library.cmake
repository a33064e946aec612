# libquern as another program meets it (docs/embedding.md), on the lookup-table model.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_executable(library_user ${CMAKE_CURRENT_SOURCE_DIR}/tools/library_user.c)
target_include_directories(library_user PRIVATE ${CMAKE_SOURCE_DIR}/runtime/engine)
target_link_libraries(library_user PRIVATE room_engine)
foreach(mode threads errors borrowed) # in the sanitizer builds, too
  add_test(NAME library-${mode} COMMAND library_user ${mode} ${CMAKE_BINARY_DIR}/table.gguf)
  set_tests_properties(library-${mode} PROPERTIES FIXTURES_REQUIRED table-models LABELS cli TIMEOUT ${hang})
endforeach()

if(NOT QUERN_SANITIZE AND NOT QUERN_TSAN)
  add_library(fail_malloc SHARED ${CMAKE_CURRENT_SOURCE_DIR}/fake/fail_malloc.c)
  add_test(NAME library-memory
           COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/library_memory.py $<TARGET_FILE:library_user>
                   $<TARGET_FILE:fail_malloc> ${CMAKE_BINARY_DIR}/table.gguf)
  set_tests_properties(library-memory PROPERTIES FIXTURES_REQUIRED table-models LABELS cli TIMEOUT ${hang})
  if(NOT QUERN_STATIC_DEPS)
    add_test(NAME library
             COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/tools/library_case.sh ${CMAKE_BINARY_DIR} ${CMAKE_BINARY_DIR}/table.gguf)
    set_tests_properties(library PROPERTIES FIXTURES_REQUIRED table-models LABELS cli TIMEOUT ${hang})
  endif()
endif()
