//! Fitted models, and their file format.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{OwnModel, PaperModel, WordLength};

/// The format identifier of model files.
pub const FORMAT: &str = "packtrain-loss-model 1";
/// Maximum ratio of a window's length to the one that a model was fitted to.
const SIZE_RATIO: f64 = 2.25;

/// Both classifiers fitted to windows of one or more lengths, with their provenance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// [`FORMAT`].
    pub format: String,
    /// The origin of the model.
    pub provenance: Provenance,
    /// One entry per window length.
    pub sizes: Vec<SizeModel>,
}

/// The origin of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Program and version that fitted it.
    pub program: String,
    /// Date of fitting, year-month-day.
    pub date: String,
    /// Seed of all random choices of the fit.
    pub seed: u64,
    /// Length n of the words counted for the complexity.
    pub word_length: u32,
    /// The data: file name and BLAKE3 of its bytes.
    pub data: BTreeMap<String, String>,
    /// Further notes.
    #[serde(default)]
    pub notes: String,
}

/// Both classifiers for windows of about one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeModel {
    /// Packets in a window.
    pub packets: usize,
    /// Training windows by family.
    pub windows: BTreeMap<String, usize>,
    /// Quality of the fits, by fitted quantity.
    pub fit: BTreeMap<String, f64>,
    /// The paper's classifier.
    pub paper: PaperModel,
    /// Our classifier.
    pub own: OwnModel,
}

/// Why a file is not a valid model.
#[derive(Debug, Error)]
pub enum ModelError {
    /// It is not valid JSON for a model.
    #[error("not a model: {0}")]
    Json(#[from] serde_json::Error),
    /// Another format.
    #[error("not a model of this version: it calls itself {0:?}, not {FORMAT:?}")]
    Format(String),
    /// An invalid value.
    #[error("the model for windows of {packets} packets has senseless {what}")]
    Invalid {
        /// The window length.
        packets: usize,
        /// The value.
        what: &'static str,
    },
    /// The word length is missing or out of range.
    #[error("words of {0} packets are not counted: 1 to 24")]
    WordLength(u32),
    /// There is no window length.
    #[error("the model is for no window length at all")]
    Empty,
}

impl Model {
    /// Reads a model file.
    ///
    /// # Errors
    /// It is no valid model.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        let model: Self = serde_json::from_str(text)?;
        model.check()?;
        Ok(model)
    }

    /// The text for [`Model::from_json`].
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("a model has nothing JSON cannot say");
        text.push('\n');
        text
    }

    /// The model that is part of the crate.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Model> = OnceLock::new();
        BUILTIN.get_or_init(|| {
            Self::from_json(include_str!("../models/builtin.json")).expect("tests read it")
        })
    }

    /// Length of the words it was fitted with.
    pub fn word_length(&self) -> WordLength {
        WordLength::new(self.provenance.word_length).unwrap_or_default()
    }

    /// The entry for windows of `packets`, and whether this length is near enough to the fitted
    /// one.
    pub fn size(&self, packets: usize) -> Option<(&SizeModel, bool)> {
        let apart =
            |size: &SizeModel| ((packets.max(1)) as f64 / size.packets.max(1) as f64).ln().abs();
        let size = self.sizes.iter().min_by(|a, b| apart(a).total_cmp(&apart(b)))?;
        Some((size, apart(size) <= SIZE_RATIO.ln()))
    }

    /// Checks all values.
    ///
    /// # Errors
    /// Names the first invalid value.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.format != FORMAT {
            return Err(ModelError::Format(self.format.clone()));
        }
        if WordLength::new(self.provenance.word_length).is_none() {
            return Err(ModelError::WordLength(self.provenance.word_length));
        }
        if self.sizes.is_empty() {
            return Err(ModelError::Empty);
        }
        let flaw = |size: &SizeModel| {
            let what = if size.packets == 0 { Some("length") } else { size.own.flaw() }?;
            Some(ModelError::Invalid { packets: size.packets, what })
        };
        self.sizes.iter().find_map(flaw).map_or(Ok(()), Err)
    }
}
