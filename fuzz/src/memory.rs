//! How much memory a parser takes for its input. All of the process is measured, so targets that are to be judged run one
//! at a time.

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Runs `parse`, and asserts that at no moment it held more than `times` the input and a constant.
#[track_caller]
pub fn bounded<T>(input: usize, times: usize, parse: impl FnOnce() -> T) -> T {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let parsed = parse();
    let taken = ALLOCATOR.peak_usage().saturating_sub(before);
    let allowed = times * input + CONSTANT_BYTES;
    assert!(taken <= allowed, "{taken} bytes of memory for {input} bytes of input; {allowed} are allowed");
    parsed
}

/// What a parser may take for nothing: small vectors that start with a few places, and the test harness's own moments.
const CONSTANT_BYTES: usize = 32 << 10;
