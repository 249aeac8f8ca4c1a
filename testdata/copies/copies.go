// Package copies has what go vet must find.
package copies

import "github.com/holdfast-go/holdfast"

func copies(m *holdfast.Mutex, rw *holdfast.RWMutex, s *holdfast.Semaphore) (any, any, any) {
	mutex := *m
	rwmutex := *rw
	semaphore := *s
	return &mutex, &rwmutex, &semaphore
}
