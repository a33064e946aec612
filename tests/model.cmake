# Tests that load the golden models, which the fixture of goldens.cmake makes.
set_tests_properties(test_model test_model_families test_model_check test_model_draft test_check test_prefill PROPERTIES FIXTURES_REQUIRED golden-models)
