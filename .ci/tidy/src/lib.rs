//! Checks that the compiler cannot make; they live in `tests/`.
