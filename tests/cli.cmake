# The commands and the library against the lookup-table model (tools/make_table_model.py).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(table_tool ${CMAKE_CURRENT_SOURCE_DIR}/tools/make_table_model.py)
foreach(variant "" -prefix/--space-prefix -ids/--no-tokenizer -nan/--nan)
  string(REPLACE "/" ";" words "${variant}")
  list(POP_FRONT words suffix)
  add_test(NAME table-model${suffix}
           COMMAND Python3::Interpreter ${table_tool} ${CMAKE_BINARY_DIR}/table${suffix}.gguf ${words})
  set_tests_properties(table-model${suffix} PROPERTIES FIXTURES_SETUP table-models LABELS cli)
endforeach()
set_tests_properties(test_generate test_device_loop test_session test_sequences PROPERTIES FIXTURES_REQUIRED "table-models;golden-models")

foreach(name cli cli_bench cli_options cli_run)
  add_test(NAME ${name}
           COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/test_${name}.py $<TARGET_FILE:quern>)
  set_tests_properties(${name} PROPERTIES LABELS cli TIMEOUT ${hang})
endforeach()

# quern chat, at a pipe and at a pseudo-terminal; turns with a real model (scripts/fetch-models.sh).
add_test(NAME chat COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/test_chat.py $<TARGET_FILE:quern>)
set_tests_properties(chat PROPERTIES LABELS cli TIMEOUT ${hang})
add_test(NAME real-chat
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/chat_real.py $<TARGET_FILE:quern>
                 ${CMAKE_SOURCE_DIR}/models/SmolLM2-135M-Instruct.Q4_1.gguf)
set_tests_properties(real-chat PROPERTIES LABELS real TIMEOUT ${hang} RUN_SERIAL TRUE)
