typedef int qn_cli_room; /* keeps an empty room buildable; goes with the first source file */
