# Chat templates: the command, the vendors' templates, and what the language does.
set(template_data ${CMAKE_CURRENT_SOURCE_DIR}/data/templates)
add_test(NAME template-vendors
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/template_cases.py $<TARGET_FILE:quern>
                 ${template_data}/vendors.tar.xz 784)
set_tests_properties(template-vendors PROPERTIES LABELS template TIMEOUT 300)
set_tests_properties(test_template PROPERTIES FIXTURES_REQUIRED table-models)
