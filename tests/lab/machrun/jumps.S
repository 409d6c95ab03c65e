// sigsetjmp and siglongjmp with buffers as large as Apple's: 192 bytes on arm64 and 148 on x86_64, where glibc's are larger.
#if defined(__aarch64__)
  .text
  .globl lab_sigsetjmp
  .type lab_sigsetjmp, %function
lab_sigsetjmp:  // (buffer, save the mask?)
  stp x19, x20, [x0]
  stp x21, x22, [x0, #16]
  stp x23, x24, [x0, #32]
  stp x25, x26, [x0, #48]
  stp x27, x28, [x0, #64]
  stp x29, x30, [x0, #80]
  mov x2, sp
  str x2, [x0, #96]
  stp d8, d9, [x0, #104]
  stp d10, d11, [x0, #120]
  stp d12, d13, [x0, #136]
  stp d14, d15, [x0, #152]
  add x0, x0, #168
  b lab_save_mask  // its 0 is ours
  .globl lab_jump
  .type lab_jump, %function
lab_jump:  // (buffer, value)
  ldp x19, x20, [x0]
  ldp x21, x22, [x0, #16]
  ldp x23, x24, [x0, #32]
  ldp x25, x26, [x0, #48]
  ldp x27, x28, [x0, #64]
  ldp x29, x30, [x0, #80]
  ldr x2, [x0, #96]
  mov sp, x2
  ldp d8, d9, [x0, #104]
  ldp d10, d11, [x0, #120]
  ldp d12, d13, [x0, #136]
  ldp d14, d15, [x0, #152]
  mov w0, w1
  ret
#else
  .text
  .globl lab_sigsetjmp
  .type lab_sigsetjmp, @function
lab_sigsetjmp:
  mov %rbx, (%rdi)
  mov %rbp, 8(%rdi)
  mov %r12, 16(%rdi)
  mov %r13, 24(%rdi)
  mov %r14, 32(%rdi)
  mov %r15, 40(%rdi)
  lea 8(%rsp), %rdx
  mov %rdx, 48(%rdi)
  mov (%rsp), %rdx
  mov %rdx, 56(%rdi)
  add $64, %rdi
  jmp lab_save_mask
  .globl lab_jump
  .type lab_jump, @function
lab_jump:
  mov (%rdi), %rbx
  mov 8(%rdi), %rbp
  mov 16(%rdi), %r12
  mov 24(%rdi), %r13
  mov 32(%rdi), %r14
  mov 40(%rdi), %r15
  mov 48(%rdi), %rsp
  mov %esi, %eax
  jmp *56(%rdi)
#endif
  .section .note.GNU-stack, "", %progbits
