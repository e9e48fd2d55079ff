/* Made by tests/golden/mlp.py with PyTorch 1.13.0a0; do not edit. */
static const double golden_first[] = { -0x1.e253440000000p-4, 0x1.646d400000000p-4, 0x1.f882d20000000p-9, 0x1.9010480000000p-8 };
static const double golden_last[] = { -0x1.2c33080000000p-5, 0x1.4039800000000p-5, 0x1.4b825c0000000p-4, -0x1.a284540000000p-5 };
static const double golden_x[] = { -0x1.20370a0000000p+0, -0x1.2701140000000p+0, 0x1.16415e0000000p+0, 0x1.1404a80000000p+1 };
static const int golden_y[] = { 2, 7, 4, 4, 4, 9, 1, 9, 8, 0 };
static const double golden_norm[] = { 0x1.217537a9756acp-1, 0x1.0d7a090cdbadfp-4, 0x1.8cb3a61c73b6bp-1, 0x1.5c237c71c234fp-3 };
static const double golden_loss[] = { 0x1.34de320000000p+1, 0x1.2f5a820000000p+1, 0x1.25e06c0000000p+1, 0x1.2981420000000p+1, 0x1.2ec6980000000p+1, 0x1.2457f60000000p+1, 0x1.2bac2a0000000p+1, 0x1.2807420000000p+1, 0x1.2a3d660000000p+1, 0x1.2d8ac60000000p+1 };
