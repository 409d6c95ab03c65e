// The function of a thread-local variable's descriptor: the compiler expects it to change no register but the one with the result.
#if defined(__aarch64__)
  .text
  .globl lab_tlv_bootstrap
  .type lab_tlv_bootstrap, %function
lab_tlv_bootstrap:
  sub sp, sp, #672
  stp x29, x30, [sp]
  mov x29, sp
  stp x1, x2, [sp, #16]
  stp x3, x4, [sp, #32]
  stp x5, x6, [sp, #48]
  stp x7, x8, [sp, #64]
  stp x9, x10, [sp, #80]
  stp x11, x12, [sp, #96]
  stp x13, x14, [sp, #112]
  stp x15, x16, [sp, #128]
  stp x17, x18, [sp, #144]
  stp q0, q1, [sp, #160]
  stp q2, q3, [sp, #192]
  stp q4, q5, [sp, #224]
  stp q6, q7, [sp, #256]
  stp q8, q9, [sp, #288]
  stp q10, q11, [sp, #320]
  stp q12, q13, [sp, #352]
  stp q14, q15, [sp, #384]
  stp q16, q17, [sp, #416]
  stp q18, q19, [sp, #448]
  stp q20, q21, [sp, #480]
  stp q22, q23, [sp, #512]
  stp q24, q25, [sp, #544]
  stp q26, q27, [sp, #576]
  stp q28, q29, [sp, #608]
  stp q30, q31, [sp, #640]
  bl lab_tlv_address
  ldp x1, x2, [sp, #16]
  ldp x3, x4, [sp, #32]
  ldp x5, x6, [sp, #48]
  ldp x7, x8, [sp, #64]
  ldp x9, x10, [sp, #80]
  ldp x11, x12, [sp, #96]
  ldp x13, x14, [sp, #112]
  ldp x15, x16, [sp, #128]
  ldp x17, x18, [sp, #144]
  ldp q0, q1, [sp, #160]
  ldp q2, q3, [sp, #192]
  ldp q4, q5, [sp, #224]
  ldp q6, q7, [sp, #256]
  ldp q8, q9, [sp, #288]
  ldp q10, q11, [sp, #320]
  ldp q12, q13, [sp, #352]
  ldp q14, q15, [sp, #384]
  ldp q16, q17, [sp, #416]
  ldp q18, q19, [sp, #448]
  ldp q20, q21, [sp, #480]
  ldp q22, q23, [sp, #512]
  ldp q24, q25, [sp, #544]
  ldp q26, q27, [sp, #576]
  ldp q28, q29, [sp, #608]
  ldp q30, q31, [sp, #640]
  ldp x29, x30, [sp]
  add sp, sp, #672
  ret
#else
  .text
  .globl lab_tlv_bootstrap
  .type lab_tlv_bootstrap, @function
lab_tlv_bootstrap:
  pushq %rbp
  movq %rsp, %rbp
  subq $320, %rsp
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movq %r10, 48(%rsp)
  movq %r11, 56(%rsp)
  movaps %xmm0, 64(%rsp)
  movaps %xmm1, 80(%rsp)
  movaps %xmm2, 96(%rsp)
  movaps %xmm3, 112(%rsp)
  movaps %xmm4, 128(%rsp)
  movaps %xmm5, 144(%rsp)
  movaps %xmm6, 160(%rsp)
  movaps %xmm7, 176(%rsp)
  movaps %xmm8, 192(%rsp)
  movaps %xmm9, 208(%rsp)
  movaps %xmm10, 224(%rsp)
  movaps %xmm11, 240(%rsp)
  movaps %xmm12, 256(%rsp)
  movaps %xmm13, 272(%rsp)
  movaps %xmm14, 288(%rsp)
  movaps %xmm15, 304(%rsp)
  call lab_tlv_address
  movq 0(%rsp), %rdi
  movq 8(%rsp), %rsi
  movq 16(%rsp), %rdx
  movq 24(%rsp), %rcx
  movq 32(%rsp), %r8
  movq 40(%rsp), %r9
  movq 48(%rsp), %r10
  movq 56(%rsp), %r11
  movaps 64(%rsp), %xmm0
  movaps 80(%rsp), %xmm1
  movaps 96(%rsp), %xmm2
  movaps 112(%rsp), %xmm3
  movaps 128(%rsp), %xmm4
  movaps 144(%rsp), %xmm5
  movaps 160(%rsp), %xmm6
  movaps 176(%rsp), %xmm7
  movaps 192(%rsp), %xmm8
  movaps 208(%rsp), %xmm9
  movaps 224(%rsp), %xmm10
  movaps 240(%rsp), %xmm11
  movaps 256(%rsp), %xmm12
  movaps 272(%rsp), %xmm13
  movaps 288(%rsp), %xmm14
  movaps 304(%rsp), %xmm15
  movq %rbp, %rsp
  popq %rbp
  ret
#endif
  .section .note.GNU-stack, "", %progbits
