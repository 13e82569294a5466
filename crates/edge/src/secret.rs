//! Secrets that somebody shows, compared.

/// Compares without telling by its time where they differ. An empty secret is no secret: it never fits.
pub fn same_secret(expect: &str, given: &[u8]) -> bool {
    let expect = expect.as_bytes();
    if expect.is_empty() || expect.len() != given.len() {
        return false;
    }
    let differ = expect.iter().zip(given).fold(0u8, |differ, (a, b)| std::hint::black_box(differ | (a ^ b)));
    differ == 0
}
