/work/wt/me/target-old/release/deps/deadlock_model-25fa309bac231291.d: tests/deadlock_model.rs

/work/wt/me/target-old/release/deps/deadlock_model-25fa309bac231291: tests/deadlock_model.rs

tests/deadlock_model.rs:
