"""The messages of tests/golden/noise.h, by an independent implementation: pip install noiseprotocol==0.3.1.

Prints one line a message, then the handshake's hash; compare with the header."""
import re
from noise.connection import Keypair, NoiseConnection

text = open(__file__.replace("check-noise.py", "noise.h")).read()
value = lambda name: bytes.fromhex("".join(re.findall(r'"([0-9a-f]+)"', re.search(name + r"\[\] = (.*?);", text, re.S)[1])))
rows = re.findall(r"\{ (.*?) \}", re.search(r"noise_message\[\]\[2\] = \{(.*)\};", text, re.S)[1], re.S)
rows = [(bytes.fromhex(w[0]), "".join(w[1:])) for w in (re.findall(r'"([0-9a-f]+)"', r) for r in rows)]

def side(e):
    c = NoiseConnection.from_name(b"Noise_NNpsk0_25519_ChaChaPoly_BLAKE2b")
    c.set_psks(value("noise_psk"))
    c.set_prologue(value("noise_prologue"))
    c.set_keypair_from_private_bytes(Keypair.EPHEMERAL, e)
    return c

a, b = side(value("noise_init_e")), side(value("noise_resp_e"))
a.set_as_initiator(); b.set_as_responder()
a.start_handshake(); b.start_handshake()
hash_of = []
for c in (a, b):  # the hash is forgotten at Split: keep a reference to its state
    hash_of.append(c.noise_protocol.handshake_state.symmetric_state)
for i, (payload, want) in enumerate(rows):
    src, dst = (a, b) if i % 2 == 0 else (b, a)
    m = src.write_message(payload) if i < 2 else src.encrypt(payload)
    assert bytes(dst.read_message(m) if i < 2 else dst.decrypt(m)) == payload
    print("same" if m.hex() == want else "DIFFERENT", m.hex())
for s in hash_of:
    print("same" if s.get_handshake_hash() == value("noise_hash") else "DIFFERENT", s.get_handshake_hash().hex())
