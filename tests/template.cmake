# Chat templates: the vendors', and what the language does (tests/tools/make_template_cases.py).
set(template_data ${CMAKE_CURRENT_SOURCE_DIR}/data/templates)
foreach(archive vendors/784 language/2779)
  string(REPLACE "/" ";" words "${archive}")
  list(POP_FRONT words name)
  add_test(NAME template-${name}
           COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/template_cases.py $<TARGET_FILE:quern>
                   ${template_data}/${name}.tar.xz ${words})
  set_tests_properties(template-${name} PROPERTIES LABELS template TIMEOUT ${hang})
endforeach()
set_tests_properties(test_template PROPERTIES FIXTURES_REQUIRED table-models)
add_test(NAME template-cli COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/template_cli.sh $<TARGET_FILE:quern>
                                   ${CMAKE_BINARY_DIR}/table.gguf)
set_tests_properties(template-cli PROPERTIES LABELS "template;cli" FIXTURES_REQUIRED table-models TIMEOUT ${hang})
