use std::sync::OnceLock;

/// Returns the number of CPUs that this process can use, queried once; `None` if the system does not report it.
pub(crate) fn cpus() -> Option<usize> {
    static CPUS: OnceLock<Option<usize>> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().ok().map(usize::from))
}
