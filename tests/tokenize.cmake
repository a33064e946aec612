# The commands tokenize and detokenize, on the golden vocabularies.
set(tok_data ${CMAKE_CURRENT_SOURCE_DIR}/data/tokenizers)
foreach(name deepseek-coder falcon gpt-2 llama-spm phi-3 starcoder)
  set(vocabulary ${tok_data}/ggml-vocab-${name})
  add_test(NAME tokenize-cases-${name} COMMAND quern tokenize ${vocabulary}.gguf --cases ${vocabulary}.cases.jsonl)
endforeach()
add_test(NAME tokenize-cases-mini-gemma4 COMMAND quern tokenize ${tok_data}/mini-gemma4.gguf --cases
                                                 ${tok_data}/mini-gemma4.cases.jsonl)
# The other files' cases do not match, and the command says so.
add_test(NAME tokenize-cases-differ COMMAND quern tokenize ${tok_data}/ggml-vocab-gpt-2.gguf --cases
                                            ${tok_data}/ggml-vocab-phi-3.cases.jsonl)
set_tests_properties(tokenize-cases-differ PROPERTIES PASS_REGULAR_EXPRESSION "add_special=true.*\n[0-9]+ of 300\n")
add_test(NAME tokenize-cli COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/tokenize_cli.sh
                                   $<TARGET_FILE:quern> ${tok_data})
