//! What `flotilla-load capacity` measured, and how far it moves a forecast. Pure.

use serde::Deserialize;

use super::speed::{Forecast, Load};

/// The file: what a plan needs of it. Whoever writes it may say more.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Measured {
    /// The model that was asked.
    pub model: String,
    /// Requests a second within the SLO, over all replicas.
    pub rate_max_per_s: f64,
    /// Requests at once at that rate, over all replicas.
    #[serde(default)]
    pub concurrency_max: Option<f64>,
    /// Tokens of a prompt.
    #[serde(default)]
    pub prompt_tokens_mean: Option<f64>,
    /// Tokens of an answer.
    #[serde(default)]
    pub output_tokens_mean: Option<f64>,
    /// Replicas that answered.
    pub replicas: u32,
    /// Wait for the first token.
    #[serde(default)]
    pub ttft_ms: Option<Spread>,
    /// Mean time of a later token.
    #[serde(default)]
    pub tpot_ms: Option<Spread>,
}

/// A time's distribution, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Spread {
    /// Its median.
    pub p50: f64,
}

/// How much longer things take than the roofline says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Calibration {
    /// Of a later token.
    pub tpot: f64,
    /// Of a prompt.
    pub ttft: f64,
}

impl Measured {
    /// Reads the file's text.
    ///
    /// # Errors
    ///
    /// Names the key that is missing or out of range.
    pub fn parse(text: &str) -> Result<Self, String> {
        let measured: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if measured.replicas == 0 {
            return Err("replicas is 0; it must be 1 or more".to_owned());
        }
        for (name, value) in [
            ("rate_max_per_s", Some(measured.rate_max_per_s)),
            ("concurrency_max", measured.concurrency_max),
            ("prompt_tokens_mean", measured.prompt_tokens_mean),
            ("output_tokens_mean", measured.output_tokens_mean),
            ("ttft_ms.p50", measured.ttft_ms.map(|spread| spread.p50)),
            ("tpot_ms.p50", measured.tpot_ms.map(|spread| spread.p50)),
        ] {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
                return Err(format!("{name} is {value}; it must be more than 0"));
            }
        }
        Ok(measured)
    }

    /// Requests a second of one replica.
    pub fn rate_per_replica(&self) -> f64 {
        self.rate_max_per_s / f64::from(self.replicas)
    }

    /// The load of one replica while it was measured; `None` where the file doesn't say.
    pub fn load(&self) -> Option<Load> {
        let (prompt, output) = (self.prompt_tokens_mean?, self.output_tokens_mean?);
        let sequences = self.concurrency_max? / f64::from(self.replicas);
        Some(Load {
            sequences: sequences.round().max(1.0) as u32,
            context_tokens: (prompt + output / 2.0) as u32,
            prompt_tokens: prompt.max(1.0) as u32,
        })
    }

    /// What was measured over what the roofline says of the same load. 1 where nothing was measured.
    pub fn calibration(&self, forecast: &Forecast) -> Calibration {
        let over =
            |spread: Option<Spread>, forecast_ms: f64| spread.map_or(1.0, |spread| spread.p50 / forecast_ms);
        Calibration { tpot: over(self.tpot_ms, forecast.tpot_ms), ttft: over(self.ttft_ms, forecast.ttft_ms) }
    }

    /// Why its rate may not be that of the demand: requests of another size.
    pub fn doubt(&self, prompt_tokens: u32, answer_tokens: u32) -> Option<String> {
        let differs = |mean: Option<f64>, asked: u32| {
            let ratio = mean? / f64::from(asked.max(1));
            (!(0.5..=2.0).contains(&ratio)).then_some(())
        };
        let is_other = differs(self.prompt_tokens_mean, prompt_tokens).is_some()
            || differs(self.output_tokens_mean, answer_tokens).is_some();
        is_other.then(|| {
            format!(
                "measured with prompts of {:.0} and answers of {:.0} tokens, planned for {prompt_tokens} and {answer_tokens}: \
                 measure with such requests",
                self.prompt_tokens_mean.unwrap_or(0.0),
                self.output_tokens_mean.unwrap_or(0.0)
            )
        })
    }
}

impl Calibration {
    /// The forecast of another load of the same replica.
    pub fn applied(self, forecast: Forecast) -> Forecast {
        Forecast {
            tpot_ms: forecast.tpot_ms * self.tpot,
            tpot_alone_ms: forecast.tpot_alone_ms * self.tpot,
            ttft_ms: forecast.ttft_ms * self.ttft,
            decode_tokens_per_s: forecast.decode_tokens_per_s / self.tpot,
            prefill_tokens_per_s: forecast.prefill_tokens_per_s / self.ttft,
            talk: forecast.talk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"model": "m", "endpoint": "http://127.0.0.1:8000", "slo": {"ttft_ms": 2000},
        "rate_max_per_s": 12.0, "concurrency_max": 96, "output_tokens_per_s": 2400, "prompt_tokens_mean": 500,
        "output_tokens_mean": 200, "replicas": 3, "ttft_ms": {"p50": 400, "p99": 900}, "tpot_ms": {"p50": 30, "p99": 40}}"#;

    const FORECAST: Forecast = Forecast {
        tpot_ms: 20.0,
        tpot_alone_ms: 10.0,
        ttft_ms: 200.0,
        decode_tokens_per_s: 1600.0,
        prefill_tokens_per_s: 5000.0,
        talk: 0.0,
    };

    #[test]
    fn a_capacity_file_is_one_replicas_rate_and_load() {
        let measured = Measured::parse(FILE).unwrap();
        assert!((measured.rate_per_replica() - 4.0).abs() < 1e-9);
        assert_eq!(measured.load(), Some(Load { sequences: 32, context_tokens: 600, prompt_tokens: 500 }));
    }

    #[test]
    fn a_calibrated_forecast_of_the_measured_load_is_what_was_measured() {
        let calibrated = Measured::parse(FILE).unwrap().calibration(&FORECAST).applied(FORECAST);
        assert!((calibrated.tpot_ms - 30.0).abs() < 1e-9 && (calibrated.ttft_ms - 400.0).abs() < 1e-9);
        assert!((calibrated.decode_tokens_per_s - 1600.0 / 1.5).abs() < 1e-6);
        let sparse = Measured::parse(r#"{"model": "m", "rate_max_per_s": 1, "replicas": 1}"#).unwrap();
        assert_eq!(sparse.calibration(&FORECAST).applied(FORECAST), FORECAST);
        assert_eq!(sparse.load(), None);
    }

    #[test]
    fn requests_of_another_size_are_doubted() {
        let measured = Measured::parse(FILE).unwrap();
        assert_eq!(measured.doubt(600, 256), None);
        assert!(measured.doubt(4000, 256).unwrap().contains("prompts of 500"));
        assert!(measured.doubt(500, 2000).is_some());
    }

    #[test]
    fn what_cannot_be_a_measurement_is_named() {
        let check = |from: &str, to: &str, part: &str| {
            let message = Measured::parse(&FILE.replace(from, to)).unwrap_err();
            assert!(message.contains(part), "{message}");
        };
        check("\"replicas\": 3", "\"replicas\": 0", "replicas is 0");
        check("\"rate_max_per_s\": 12.0", "\"rate_max_per_s\": -1", "rate_max_per_s is -1");
        check("\"rate_max_per_s\": 12.0, ", "", "rate_max_per_s");
        check("\"p50\": 30", "\"p50\": 0", "tpot_ms.p50 is 0");
    }
}
