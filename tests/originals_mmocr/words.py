"""Images of words of digits, MMOCR's lists of them, and small text recognitions that read them."""

import json

import cv2
import numpy as np

DICTIONARY = "0123456789"
FONTS = cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_TRIPLEX

_BACKBONE = (
    "dict(type='ResNet', in_channels={channels}, stem_channels=[16], block_cfgs=dict(type='BasicBlock'), "
    "arch_layers=[1, 1, 1, 1, 1], arch_channels=[16, 16, 24, 32, 48], "
    "strides=[(2, 2), (2, 1), (2, 1), (2, 1), (2, 1)])"
)
_CTC = "dictionary=dict(type='Dictionary', dict_file={dictionary!r}, with_padding=True{more})"
_SIGNS = "dictionary=dict(type='Dictionary', dict_file={dictionary!r}, with_start=True, with_end=True{more})"
_ATTENTION = "module_loss=dict(type='CEModuleLoss'), postprocessor=dict(type='AttentionPostprocessor'), " + _SIGNS
_OF_CTC = "module_loss=dict(type='CTCModuleLoss'), postprocessor=dict(type='CTCPostProcessor'), " + _CTC

NETWORKS = {
    "CTC": (
        "type='CRNN', preprocessor=None, encoder=None, backbone=" + _BACKBONE + ", "
        "decoder=dict(type='CRNNDecoder', in_channels=48, rnn_flag={recurrent}, " + _OF_CTC + ")"
    ),
    "SVTR": (
        "type='SVTR', preprocessor=None, encoder=dict(type='SVTREncoder', img_size=[32, 64], in_channels=3, "
        "out_channels=24, embed_dims=[16, 24, 32], depth=[1, 1, 1], num_heads=[1, 1, 2], max_seq_len=16, "
        "mixer_types=['Local', 'Local', 'Global'], window_size=[[7, 11], [7, 11], [7, 11]], num_layers=2), "
        "decoder=dict(type='SVTRDecoder', in_channels=24, " + _OF_CTC + ")"
    ),
    "ASTER": (
        "type='ASTER', preprocessor=None, backbone=" + _BACKBONE + ", "
        "encoder=dict(type='ASTEREncoder', in_channels=48), decoder=dict(type='ASTERDecoder', max_seq_len=4, "
        "in_channels=48, emb_dims=48, attn_dims=48, hidden_size=48, " + _ATTENTION + ")"
    ),
    "ABINet": (
        "type='ABINet', backbone=dict(type='ResNetABI', arch_settings=[1, 1, 1, 1, 1], base_channels=16, "
        "strides=[2, 1, 2, 1, 1]), "
        "encoder=dict(type='ABIEncoder', n_layers=1, n_head=2, d_model=256, d_inner=64, max_len=128), "
        "decoder=dict(type='ABIFuser', d_model=256, max_seq_len=5, "
        "vision_decoder=dict(type='ABIVisionDecoder', in_channels=256, num_channels=16, attn_height=8, attn_width=16), "
        "module_loss=dict(type='ABIModuleLoss'), postprocessor=dict(type='AttentionPostprocessor'), " + _SIGNS + ")"
    ),
    "SAR": (
        "type='SARNet', backbone=dict(type='ResNet31OCR', layers=[1, 1, 1, 1], channels=[8, 8, 8, 8, 8, 16, 16]), "
        "encoder=dict(type='SAREncoder', enc_bi_rnn=False, d_model=16, d_enc=16, mask=True), "
        "decoder=dict(type='ParallelSARDecoder', d_model=16, d_enc=16, d_k=16, max_seq_len=3, " + _ATTENTION + ")"
    ),
}
RESIZE = {
    "one size": "dict(type='Resize', scale=(64, 32), keep_ratio=False)",
    "any width": "dict(type='RescaleToHeight', height=32, min_width=32, max_width=None, width_divisor=4)",
    "padded": (
        "dict(type='RescaleToHeight', height=32, min_width=32, max_width=128, width_divisor=4), "
        "dict(type='PadToWidth', width=128)"
    ),
}
CONFIG = """
default_scope = "mmocr"
model = dict(
    data_preprocessor=dict(type="TextRecogDataPreprocessor", mean={mean}, std={std}),
    {network},
)
test_pipeline = [
    dict(type="LoadImageFromFile", color_type={color!r}), {resize},
    dict(type="LoadOCRAnnotations", with_text=True),
    dict(type="PackTextRecogInputs", meta_keys=("img_path", "ori_shape", "img_shape", "valid_ratio")),
]
test_dataloader = dict(
    batch_size=1,
    dataset=dict(type="OCRDataset", data_root={root!r}, ann_file="words.json", test_mode=True, pipeline=test_pipeline),
)
test_evaluator = dict(type="WordMetric", mode=["exact", "ignore_case", "ignore_case_symbol"])
"""


def write(folder, count, seed):
    """Write images of words of one to four digits, some of them turned a little, and MMOCR's list of them."""
    (folder / "words").mkdir(parents=True)
    rng, entries = np.random.default_rng(seed), []
    for index in range(count):
        text = "".join(rng.choice(list(DICTIONARY), rng.integers(1, 5)))
        font, scale = FONTS[rng.integers(len(FONTS))], rng.uniform(0.9, 1.5)
        (width, height), below = cv2.getTextSize(text, font, scale, 2)
        margin = rng.integers(4, 12, 4)
        shape = height + below + margin[0] + margin[1], width + margin[2] + margin[3]
        image = cv2.resize(rng.integers(150, 256, (3, 5, 3), dtype=np.uint8), shape[::-1])
        ink = tuple(map(int, rng.integers(0, 90, 3)))
        cv2.putText(image, text, (int(margin[2]), int(margin[0]) + height), font, scale, ink, 2, cv2.LINE_AA)
        cv2.imwrite(str(folder / "words" / f"{index:03}.png"), image)
        entries.append({"img_path": f"words/{index:03}.png", "instances": [{"text": text}]})
    info = {"dataset_type": "TextRecogDataset", "task_name": "textrecog"}
    (folder / "words.json").write_text(json.dumps({"metainfo": info, "data_list": entries}))


def config(folder, root, network="CTC", resize="any width", color="color", more="", recurrent=False):
    """Write a config; return its path."""
    dictionary = folder / "digits.txt"
    dictionary.write_text("\n".join(DICTIONARY))
    channels = 1 if color == "grayscale" else 3
    described = NETWORKS[network].format(dictionary=str(dictionary), channels=channels, more=more, recurrent=recurrent)
    mean, std = ([127.0], [127.0]) if channels == 1 else ([120.0, 115.0, 100.0], [58.0, 57.0, 59.0])
    path = folder / "config.py"
    text = CONFIG.format(network=described, mean=mean, std=std, color=color, resize=RESIZE[resize], root=str(root))
    path.write_text(text)
    return path
