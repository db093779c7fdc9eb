TOLD: dict[str, str] = {}
OURS: dict[str, str] = {}
NOT_ASKED: dict[str, str] = {"grow to 2^31-1": "", "grow to 10,003": ""}
