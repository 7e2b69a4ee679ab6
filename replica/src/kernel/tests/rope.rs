use replica_format::facts::{Rope, RopeScaling};

use crate::kernel::RopeTable;

const DIM: u32 = 8;

/// Cosine and sine of pair `pair` at position 1 tell its speed.
fn speeds(scaling: RopeScaling, context: u32) -> Vec<f32> {
    let rope = Rope { theta: 10000.0, local_theta: None, dim: DIM, scaling };
    let angles = RopeTable::new(&rope, rope.theta, context).angles(&[1]);
    let (cos, sin) = angles.row(0);
    sin.iter().zip(cos).map(|(sin, cos)| sin.atan2(*cos)).collect()
}

fn check(scaling: &RopeScaling, context: u32, wanted: [f32; 4]) {
    let got = speeds(scaling.clone(), context);
    for (got, wanted) in got.iter().zip(wanted) {
        assert!((got - wanted).abs() <= 2e-6 * wanted, "{scaling:?}: {got}, not {wanted}");
    }
}

// The wanted speeds are what transformers' ROPE_INIT_FUNCTIONS give for theta 10000 and dimension 8.
#[test]
fn every_scaling_turns_as_the_reference_does() {
    check(&RopeScaling::None, 4096, [1.0, 0.1, 0.01, 0.001]);
    check(&RopeScaling::Linear { factor: 4.0 }, 4096, [0.25, 0.025, 0.0025, 0.00025]);
    let llama = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 1024,
    };
    check(&llama, 8192, LLAMA3);
    let dynamic = RopeScaling::Dynamic { factor: 2.0, original_context: 2048 };
    check(&dynamic, 4096, DYNAMIC);
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: 1.0,
        original_context: 2048,
    };
    check(&yarn, 8192, YARN);
    let long = RopeScaling::Long {
        short: vec![1.0, 2.0, 4.0, 8.0],
        long: vec![10.0, 20.0, 40.0, 80.0],
        attention_factor: 1.0,
        original_context: 4096,
    };
    check(&long, 4096, [1.0, 0.05, 0.0025, 0.000_125]);
    check(&long, 8192, [0.1, 0.005, 0.000_25, 0.000_012_5]);
}

const LLAMA3: [f32; 4] = [1.0, 0.1, 0.003_086_761, 0.000_125];
const DYNAMIC: [f32; 4] = [1.0, 0.069_336_127, 0.004_807_499, 0.000_333_333];
const YARN: [f32; 4] = [1.0, 0.1, 0.00625, 0.00025];

#[test]
fn the_attention_factor_stretches_cosine_and_sine() {
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: 1.25,
        original_context: 2048,
    };
    let rope = Rope { theta: 10000.0, local_theta: None, dim: DIM, scaling };
    let angles = RopeTable::new(&rope, rope.theta, 8192).angles(&[0, 7]);
    assert_eq!(angles.row(0), (&[1.25; 4][..], &[0.0; 4][..]));
    let (cos, sin) = angles.row(1);
    for (cos, sin) in cos.iter().zip(sin) {
        assert!((cos.hypot(*sin) - 1.25).abs() < 1e-6);
    }
}
