typedef int qn_codegen_room; /* keeps an empty room buildable; goes with the first source file */
