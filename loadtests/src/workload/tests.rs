use super::*;

fn starts(shape: Shape, count: u32) -> Vec<f64> {
    let arrivals = Arrivals { per_s: 10.0, to_per_s: None, shape };
    let starts = arrivals.starts(count, &mut SmallRng::seed_from_u64(1));
    starts.iter().map(Duration::as_secs_f64).collect()
}

/// Mean gap in seconds, and the gaps' variance as a share of the mean's square.
fn gaps(shape: Shape) -> (f64, f64) {
    const COUNT: u32 = 40_000;
    let starts = starts(shape, COUNT);
    let mean = starts[COUNT as usize - 1] / f64::from(COUNT);
    let square = |gap: &[f64]| (gap[1] - gap[0] - mean).powi(2);
    (mean, starts.windows(2).map(square).sum::<f64>() / f64::from(COUNT) / mean / mean)
}

#[test]
fn arrivals_have_their_rate_and_shape() {
    for (shape, variance) in
        [(Shape::Constant, 0.0), (Shape::Poisson, 1.0), (Shape::Gamma(0.25), 4.0), (Shape::Gamma(4.0), 0.25)]
    {
        let (mean, spread) = gaps(shape);
        assert!((mean - 0.1).abs() < 0.003, "{shape:?}: mean {mean}");
        assert!((spread - variance).abs() < 0.15 * variance + 1e-6, "{shape:?}: {spread}");
    }
}

#[test]
fn a_ramp_grows_denser() {
    let arrivals = Arrivals { per_s: 1.0, to_per_s: Some(20.0), shape: Shape::Constant };
    let starts = arrivals.starts(1000, &mut SmallRng::seed_from_u64(1));
    let span = |from: usize, to: usize| starts[to].as_secs_f64() - starts[from].as_secs_f64();
    assert!(span(500, 999) < span(0, 499) / 2.0);
}

fn rag(zipf: f64) -> Workload {
    Workload {
        sessions: 2000,
        arrivals: Arrivals { per_s: 1.0, to_per_s: None, shape: Shape::Poisson },
        kind: Kind::Rag {
            documents: 50,
            zipf,
            document_tokens: Range(1000, 2000),
            question_tokens: Range(10, 20),
            answer_tokens: Range(5, 50),
        },
    }
}

#[test]
fn the_same_seed_gives_the_same_sessions() {
    assert_eq!(rag(1.0).sessions(7), rag(1.0).sessions(7));
    assert_ne!(rag(1.0).sessions(7), rag(1.0).sessions(8));
}

#[test]
fn popular_documents_are_shared_and_questions_are_not() {
    let mut documents = std::collections::BTreeMap::<u64, u32>::new();
    let mut questions = std::collections::BTreeSet::new();
    for session in rag(1.0).sessions(1) {
        let text = &session.turns[0].text;
        *documents.entry(text[0].id).or_default() += 1;
        assert!(questions.insert(text[1].id));
    }
    let most = documents.values().max().copied().unwrap_or(0);
    // One in the harmonic number of 50, which is 4.5.
    assert!((350..550).contains(&most), "{most} of 2000");
}

#[test]
fn mixtures_keep_their_shares() {
    let unrelated =
        |tokens| Kind::Unrelated { prompt_tokens: Range(tokens, tokens), answer_tokens: Range(1, 1) };
    let parts = vec![Part { share: 3.0, kind: unrelated(10) }, Part { share: 1.0, kind: unrelated(9000) }];
    let sessions = Workload { kind: Kind::Mixed(parts), ..rag(0.0) }.sessions(3);
    let long = sessions.iter().filter(|session| session.turns[0].text[0].tokens == 9000).count();
    assert!((430..570).contains(&long), "{long} of 2000");
}

#[test]
fn mooncake_blocks_become_segments() {
    let line = r#"{"timestamp": 1500, "input_length": 1030, "output_length": 7, "hash_ids": [4, 5, 9]}"#;
    let sessions = read_mooncake(line).unwrap();
    assert_eq!(sessions[0].start, Duration::from_millis(1500));
    let tokens: Vec<_> =
        sessions[0].turns[0].text.iter().map(|segment| (segment.id, segment.tokens)).collect();
    assert_eq!(tokens, [(4, 512), (5, 512), (9, 6)]);
}

#[test]
fn a_wrong_mooncake_line_is_named() {
    let good = r#"{"timestamp": 0, "input_length": 5, "output_length": 7, "hash_ids": [4]}"#;
    let bad = r#"{"timestamp": 0, "input_length": 900, "output_length": 7, "hash_ids": [4]}"#;
    let error = read_mooncake(&format!("{good}\n{bad}\n")).unwrap_err();
    assert!(error.to_string().starts_with("line 2: input_length 900"), "{error}");
}

/// What a trace says of itself when read again: the same lengths at the same times, and shared starts stay shared.
#[test]
fn a_generated_trace_keeps_times_lengths_and_shared_prefixes() {
    let workload = rag(1.0);
    let sessions = workload.sessions(5);
    let read = read_mooncake(&write_mooncake(&sessions)).unwrap();
    assert_eq!(read.len(), sessions.len());
    let tokens = |session: &Session| session.turns[0].text.iter().map(|segment| segment.tokens).sum::<u32>();
    let same = |a: &Session, b: &Session| {
        tokens(a) == tokens(b) && a.start.abs_diff(b.start) < Duration::from_micros(1)
    };
    assert!(read.iter().zip(&sessions).all(|(a, b)| same(a, b)));
    for (a, b) in [(0, 1), (2, 3), (5, 9), (11, 12)] {
        let is_shared = sessions[a].turns[0].text[0].id == sessions[b].turns[0].text[0].id;
        let reads_shared = read[a].turns[0].text[0].id == read[b].turns[0].text[0].id;
        assert_eq!(is_shared, reads_shared);
    }
}
