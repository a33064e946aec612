# bug-Bnn: one test a row of docs/bug-cases.md, which says what else covers it.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(bug_tools ${CMAKE_CURRENT_SOURCE_DIR}/tools)
function(bug_cases script)
  foreach(id ${ARGN})
    string(TOLOWER ${id} lower)
    add_test(NAME bug-${id} COMMAND Python3::Interpreter ${bug_tools}/${script} $<TARGET_FILE:quern> -k test_${lower}_)
    set_tests_properties(bug-${id} PROPERTIES LABELS "cli;bugs" TIMEOUT 300)
  endforeach()
endfunction()
bug_cases(bugs_gguf.py B01 B02 B03 B04 B05 B06 B07 B08)
bug_cases(bugs_text.py B09 B10 B11 B12 B13 B14)
bug_cases(bugs_numerics.py B17 B18 B19 B20 B21 B22)
bug_cases(bugs_chat.py B15 B16)
add_test(NAME bug-B10-chat COMMAND Python3::Interpreter ${bug_tools}/bugs_chat.py $<TARGET_FILE:quern> -k test_b10_)
set_tests_properties(bug-B10-chat PROPERTIES LABELS "cli;bugs" TIMEOUT 300)
bug_cases(bugs_cli.py B30 B31 B32 B33 B34 B35)

# Sampler, stop strings, end tokens, streams and context, to the letter.
add_test(NAME table-exact COMMAND Python3::Interpreter ${bug_tools}/table_exact.py $<TARGET_FILE:quern>)
set_tests_properties(table-exact PROPERTIES LABELS cli TIMEOUT 600)

# Both tables are whole and name tests that there are.
add_test(NAME doc-tables COMMAND Python3::Interpreter ${bug_tools}/check_tables.py ${CMAKE_CTEST_COMMAND} ${CMAKE_BINARY_DIR}
                                 ${CMAKE_SOURCE_DIR})
set_tests_properties(doc-tables PROPERTIES LABELS style TIMEOUT 60)
