"""The table of request fields that a route does not declare: refused, known to have no effect, or unknown.

A field that would change the answer on mlx-lm, vLLM, llama.cpp, SGLang, Ollama, LM Studio or TGI is refused unless its
value means "off". What clients send without an effect passes. A field that nobody knows passes too, so that future
clients work, and is named in the answer.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

from engine.serve.errors import ApiError, unsupported

Neutral = tuple[Any, ...]
NONE: Neutral = (None,)
ONE: Neutral = (None, 1)
OFF: Neutral = (None, False, 0, "", [])
EMPTY: Neutral = (*OFF, {})

# Fields that would change an answer, with the values that would not. A route that declares a field itself is
# not judged by this table.
TABLE: tuple[tuple[Neutral, str], ...] = (
    # Sampling
    (NONE, "temperature dynatemp_min dynatemp_max"),
    (
        ONE,
        """
        top_p typical_p typical typ_p tfs_z tfs repetition_penalty repeat_penalty rep_pen encoder_repetition_penalty
        length_penalty guidance_scale cfg_scale num_beams n n_cmpl best_of
        """,
    ),
    ((None, 0, -1), "top_k min_keep top_n_sigma nsigma seed sampling_seed reasoning_budget"),
    (
        EMPTY,
        """
        min_p top_a presence_penalty frequency_penalty logit_bias xtc_probability dry_multiplier mirostat mirostat_mode
        dynatemp_range smoothing_factor skew penalty_alpha epsilon_cutoff eta_cutoff top_h no_repeat_ngram_size
        encoder_no_repeat_ngram_size use_beam_search early_stopping watermark custom_logit_processor logits_processors
        logits_processor samplers sampler_order sampler_priority temperature_last temp_last adaptive_target
        repetition_detection sequence_bias preset custom_params vllm_xargs
        """,
    ),
    ((None, True), "do_sample"),
    ((None, "instruct", "chat"), "mode"),
    # Fields about which tokens are allowed, and where the answer ends
    (
        OFF,
        """
        stop stop_sequences stop_strings stop_token_ids stop_regex stopping_strings eos_token_id ignore_eos
        ignore_eos_token ban_eos_token min_tokens min_length min_new_tokens include_stop_str_in_output no_stop_trim
        bad_words bad_words_ids banned_tokens banned_strings custom_token_bans suppress_tokens begin_suppress_tokens
        force_words_ids forced_bos_token_id forced_eos_token_id allowed_token_ids allowed_tokens thinking_token_budget
        thinking_budget thinking_budget_tokens max_thinking_tokens t_max_predict_ms max_time n_indent
        """,
    ),
    # Formats. An empty schema is one that is followed.
    (
        OFF,
        """
        grammar grammar_string guided_choice guided_grammar guided_json guided_regex guided_json_object guided_decoding
        json_schema structured_outputs structural_tag structured regex regex_pattern ebnf json_object output_format
        guideline guidance functions web_search_options
        """,
    ),
    ((*OFF, "text"), "format"),
    ((*OFF, {"type": "text"}), "response_format"),
    ((*EMPTY, {"format": {"type": "text"}}), "text"),
    ((*OFF, ["text"]), "modalities"),
    ((*OFF, "none"), "function_call"),
    ((*OFF, "none", "auto", {"type": "auto"}, {"type": "none"}), "tool_choice"),
    # The prompt
    (
        EMPTY,
        """
        messages prompt input inputs instructions system system_prompt suffix echo raw raw_prompt template context
        images image_data audio audio_data video_data documents tools chat_template chat_template_kwargs template_kwargs
        continue_final_message prefill assistant_prefix prefix_text input_prefix input_suffix input_ids input_embeds
        prompt_embeds prompt_token_ids memory negative_prompt truncate_prompt_tokens truncate role_mapping
        instruction_template character tool_prompt mm_processor_kwargs media_io_kwargs session_params n_keep num_keep
        n_discard previous_response_id conversation previous_input_messages bos_token transforms plugins mcp_servers
        container token_healing output_config
        """,
    ),
    ((None, True), "add_generation_prompt"),
    # Thoughts
    ((None, "", {}), "thinking think enable_thinking reasoning_effort"),
    # Thoughts are returned in full, whichever summary is requested.
    ((None, "", {}, *({"summary": form} for form in (None, "auto", "concise", "detailed"))), "reasoning"),
    (OFF, "thinking_forced_open"),
    ((None, True), "include_reasoning separate_reasoning stream_reasoning parse_tool_calls"),
    ((None, "", "auto", "deepseek"), "reasoning_format"),
    # The model
    (
        EMPTY,
        """
        adapter adapters adapter_id adapter_path lora loras lora_path lora_name lora_request lora_id control_vector
        control_vectors x_kakeya
        """,
    ),
    # What the answer tells
    (
        EMPTY,
        """
        logprobs top_logprobs prompt_logprobs return_logprob n_probs top_logprobs_num top_n_tokens logprob_token_ids
        token_ids_logprob return_token_ids return_tokens return_tokens_as_token_ids return_full_text
        return_hidden_states post_sampling_probs decoder_input_details details response_fields return_prompt_text
        background
        """,
    ),
    ((None, True), "skip_special_tokens detokenize"),
)
CHANGING = {name: neutral for neutral, names in TABLE for name in names.split()}
# The window of a penalty has no effect without the penalty.
WINDOWS = {
    "repetition_context_size": "repetition_penalty",
    "repeat_last_n": "repetition_penalty",
    "rep_pen_range": "repetition_penalty",
    "presence_context_size": "presence_penalty",
    "frequency_context_size": "frequency_penalty",
}
# Names of the limit of an answer. A name other than the route's own is accepted if it has the same value, or
# is the only one.
LIMITS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "n_predict",
    "num_predict",
)
_PASSING = """
    store metadata user service_tier parallel_tool_calls stream stream_options prompt_cache_key
    prompt_cache_retention prompt_cache_options safety_identifier prediction verbosity truncation include
    max_tool_calls client_metadata moderation context_management betas anthropic_beta anthropic_version
    cache_control inference_geo speed model cache_prompt keep_alive ttl priority request_id rid cache_salt
    timings_per_token return_progress litellm_metadata litellm_call_id extra_headers extra_query timeout draft_model
    num_draft_tokens num_ctx num_gpu num_thread num_batch id_slot slot_id spaces_between_special_tokens
    add_special_tokens
    """
PASSING = frozenset(_PASSING.split())  # what clients and agents send, and what cannot change an answer here
_CONTAINERS = """
    extra_body options sampling_params sampling generation_config generation_kwargs parameters model_kwargs
    extra_params inference_params inference_config nvext
    """
CONTAINERS = frozenset(_CONTAINERS.split())  # objects in which clients put such fields
MOST_NAMED = 32  # unknown fields that an answer names
CAPITAL = re.compile(r"(?<=[a-z0-9])[A-Z]")
OWN = "x_kakeya"


def check(declared: Collection[str], body: dict[str, Any]) -> list[str]:
    """Return the names of a request's unknown fields, in order.

    ``declared`` are the fields that the request's route declares.

    Raises:
        ApiError: 400, a field would change the answer; 422, an unknown option of this server.
    """
    limits = [body[name] for name in LIMITS if name in declared and body.get(name) is not None]
    names = list(_unknown(declared, body, body, limits, ""))
    return [
        *names[:MOST_NAMED],
        *([f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []),
    ]


def _unknown(
    declared: Collection[str], fields: dict[str, Any], body: dict[str, Any], limits: list[Any], within: str
) -> Iterator[str]:
    for name, value in fields.items():
        if name in declared:
            continue
        known, shown = _snake(name), within + name[:100]
        if known.startswith(OWN) and known != OWN:
            message = f"There is no option {shown}. This server's options are fields of {OWN}."
            raise ApiError(422, message, param=shown, code="invalid_override")
        if known in LIMITS and (value in (None, -1) or value in limits):
            continue
        if known in LIMITS or (known in CHANGING and not _is_neutral(value, CHANGING[known])):
            raise unsupported(shown)
        if known in WINDOWS and value is not None and not _is_neutral(body.get(WINDOWS[known]), (*OFF, 1)):
            raise unsupported(shown)
        if known in CONTAINERS and not within and isinstance(value, dict):
            yield from _unknown((), value, body, limits, f"{name[:100]}.")
        elif value is not None and not any(known in each for each in (CHANGING, PASSING, WINDOWS)):
            yield shown


def _snake(name: str) -> str:
    """Return a name in the spelling of the tables."""
    return CAPITAL.sub(lambda match: f"_{match[0]}", name[:100]).replace("-", "_").lower()


def _is_neutral(value: Any, neutral: Neutral) -> bool:
    """Return whether a value is one of these. ``True`` is not the number 1."""
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in neutral)
