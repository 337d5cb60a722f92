package admission

import "testing"

// Where all cells together hold more than the limit, it is those with more than an
// equal part of it that give up.
func TestParkedShares(t *testing.T) {
	p := NewParked(100)
	cells := make([]*Cell, 8)
	for i := range cells {
		cells[i] = &Cell{Parked: p}
		cells[i].hold(10)
	}
	cells[0].hold(15)
	if may := cells[0].allowance(); may != 25 {
		t.Errorf("below the limit a cell may hold %d, want a quarter, 25", may)
	}
	for _, s := range cells {
		s.hold(1)
	}
	cells[1].hold(-11) // it holds nothing, and counts no more
	if all, may := p.Held(), cells[2].allowance(); all != 92 || may != 25 {
		t.Errorf("%d are held and a cell may hold %d", all, may)
	}
	cells[2].hold(10)
	if all, may := p.Held(), cells[2].allowance(); all != 102 || may != 100/7 {
		t.Errorf("%d are held and a cell may hold %d, want one of 7 parts", all, may)
	}
}
