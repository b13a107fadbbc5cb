// All kernel headers, for the per-instruction-set translation units. No include guard: included once per unit.
